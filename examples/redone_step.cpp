// A C++ training loop on LibTorch that survives running out of memory, with PyTorch's own allocator. The step
// whose micro-batch does not fit is undone, and done again with half of it.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>
#include <vector>

#include "spillway/libtorch/recover.h"

namespace {

constexpr int64_t kRows = 4096, kWidth = 512;

std::vector<at::Tensor> new_layers(at::Device device) {
  std::vector<at::Tensor> layers;
  layers.reserve(8);
  for (int i = 0; i < 8; ++i)
    layers.push_back(
        at::randn({kWidth, kWidth}, at::TensorOptions().device(device)).mul_(0.06).requires_grad_(true));
  return layers;
}

// The gradients of the mean over the whole batch, whatever the pieces; returns that mean.
double accumulate(const std::vector<at::Tensor>& layers, const at::Tensor& batch, int64_t micro_batch) {
  double mean = 0;
  for (at::Tensor rows : batch.split(micro_batch)) {
    for (const at::Tensor& layer : layers) rows = at::gelu(at::matmul(rows, layer));
    const at::Tensor loss = rows.square().sum() / (batch.size(0) * kWidth);
    loss.backward();
    mean += loss.item<double>();
  }
  return mean;
}

void drop_gradients(std::vector<at::Tensor>& layers) {
  for (at::Tensor& layer : layers) layer.mutable_grad().reset();
}

// Outside what is redone: it happens once.
void update(std::vector<at::Tensor>& layers) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& layer : layers) layer.sub_(layer.grad(), 0.5);
  drop_gradients(layers);
}

}  // namespace

int main() {
  const at::Device device(at::kCUDA, 0);
  at::manual_seed(1);
  std::vector<at::Tensor> layers = new_layers(device);
  int64_t micro_batch = kRows;
  const auto halve = [&](uint32_t) {
    if (micro_batch == 1) return false;
    micro_batch /= 2;
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::printf("micro-batches of %ld rows from now on\n", static_cast<long>(micro_batch));
    return true;
  };
  for (int step = 0; step < 3; ++step) {
    const at::Tensor batch = at::randn({kRows, kWidth}, at::TensorOptions().device(device));
    const auto done = spillway::libtorch::recover(
        device, [&] { return accumulate(layers, batch, micro_batch); }, [&] { drop_gradients(layers); },
        halve);
    if (!done) {
      std::fprintf(stderr, "step %d: %s\n", step, done.last_failure.c_str());
      return 1;
    }
    update(layers);
    std::printf("step %d: loss %.5f\n", step, done.result.value_or(0));
  }
  return 0;
}
