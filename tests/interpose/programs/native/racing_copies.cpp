// A C++ program with LibTorch that knows nothing of Spillway: a thread copies between two tensors all the
// time, while another needs all the memory that there is.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

namespace {

constexpr int64_t kMiB = 1 << 20;

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
}

void copy_until(const std::atomic<bool>& stop, const at::Tensor& source, const at::Tensor& target,
                std::atomic<int>& copies) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  for (; !stop; ++copies) {
    target.copy_(source, /*non_blocking=*/true);
    source.zero_();
  }
  c10::cuda::getCurrentCUDAStream().synchronize();
}

void wait_for(const std::atomic<int>& copies, int count) {
  while (copies < count) std::this_thread::yield();
}

}  // namespace

int main() {
  int served = 0, between = 0;
  for (; served < 300; ++served) {
    const at::Tensor source = bytes(16 * kMiB), target = bytes(16 * kMiB);
    std::atomic<bool> stop{false};
    std::atomic<int> copies{0};
    std::thread copier(copy_until, std::cref(stop), std::cref(source), std::cref(target), std::ref(copies));
    wait_for(copies, 10);
    const int before = copies;
    const at::Tensor all = bytes(96 * kMiB);
    between += copies - before;
    wait_for(copies, before + 10);
    stop = true;
    copier.join();
  }
  c10::cuda::device_synchronize();
  std::printf("served %d\ncopies while memory was moved: %s\n", served, between != 0 ? "some" : "none");
  return 0;
}
