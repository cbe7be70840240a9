// A C++ program with LibTorch on Spillway's allocator, whose strategy moves tensors that it will need late to
// the host when memory runs out. Without the strategy the same program fails.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "spillway/libtorch/allocator.h"
#include "spillway/spillway.h"

namespace {

// Keeps tensors on the GPU while there is room. A strategy of the program's own, registered while this lives.
class Archive {
 public:
  Archive() {
    spillway_strategy strategy{};
    strategy.size = sizeof strategy;
    strategy.name = "archive to the host";
    strategy.guarantee = SPILLWAY_BIT_EXACT;
    strategy.offer = [](void* self, const spillway_oom*) { return static_cast<Archive*>(self)->offer(); };
    strategy.relieve = [](void* self, const spillway_oom* oom) {
      return static_cast<Archive*>(self)->move_to_host(oom->short_bytes);
    };
    strategy.context = this;
    TORCH_CHECK(spillway_register(&strategy, &id_) == SPILLWAY_OK, spillway_last_error());
  }
  ~Archive() { spillway_unregister(id_); }  // waits for a call that is under way
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  void keep(at::Tensor tensor) {
    const std::lock_guard guard(mutex_);
    kept_.push_back(std::move(tensor));
  }
  size_t on_host() {
    const std::lock_guard guard(mutex_);
    return static_cast<size_t>(std::count_if(kept_.begin(), kept_.end(),
                                             [](const at::Tensor& tensor) { return !tensor.is_cuda(); }));
  }
  // One at a time and without the lock: what PyTorch allocates for the sum may need the others' memory.
  double sum() {
    double sum = 0;
    for (size_t i = 0;; ++i) {
      const at::Tensor tensor = tensor_at(i);
      if (!tensor.defined()) return sum;
      sum += tensor.sum().item<double>();
    }
  }

 private:
  at::Tensor tensor_at(size_t index) {
    const std::lock_guard guard(mutex_);
    return index < kept_.size() ? kept_[index] : at::Tensor();
  }
  // Both are called on the thread whose request failed, which may be inside one of the functions above:
  // without waiting.
  spillway_offer offer() {
    const std::unique_lock guard(mutex_, std::try_to_lock);
    uint64_t bytes = 0;
    if (guard.owns_lock())
      for (const at::Tensor& tensor : kept_) bytes += tensor.is_cuda() ? tensor.nbytes() : 0;
    return {bytes, bytes / 12'000};  // 12 GB/s
  }
  uint64_t move_to_host(uint64_t wanted) {
    const std::unique_lock guard(mutex_, std::try_to_lock);
    uint64_t freed = 0;
    if (!guard.owns_lock()) return 0;
    for (at::Tensor& tensor : kept_) {
      if (freed >= wanted) break;
      if (!tensor.is_cuda()) continue;
      freed += tensor.nbytes();
      tensor = tensor.cpu();  // takes host memory, and none of the device
    }
    return freed;
  }

  std::mutex mutex_;
  std::vector<at::Tensor> kept_;
  spillway_strategy_id id_ = 0;
};

}  // namespace

int main() {
  if (spillway_torch_install() != 0) {
    std::fprintf(stderr, "%s\n", spillway_torch_error());
    return 1;
  }
  const auto on_device = at::TensorOptions().device(at::kCUDA).dtype(at::kFloat);
  Archive archive;
  for (int i = 0; i < 48; ++i) archive.keep(at::full({1 << 20, 4}, i, on_device));  // 16 MiB each
  std::printf("%zu of 48 tensors were moved to the host\n", archive.on_host());
  std::printf("their sum is %.0f\n", archive.sum());
  return 0;
}
