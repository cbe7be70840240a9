#include "trainer/runtime/rates.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>

namespace spillway::trainer {
namespace {

constexpr int64_t kLeastSide = 512, kMostSide = 4096;
constexpr int64_t kCopied = 1 << 20;  // numbers, in a copy of the size of an optimizer's tiles
constexpr int64_t kSummed = 1 << 24;  // numbers, more than a processor's caches hold
constexpr int kTimes = 8;

// Seconds of one of several, after a first one that loads what it needs.
template <typename Work>
double seconds_of(const Work& work) {
  using Clock = std::chrono::steady_clock;
  work();
  c10::cuda::device_synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < kTimes; ++i) work();
  c10::cuda::device_synchronize();
  return std::max(1e-9, std::chrono::duration<double>(Clock::now() - start).count() / kTimes);
}

// Beside the workspace that the library of products takes with its first one, and keeps.
int64_t side_within(uint64_t bytes, uint64_t workspace) {
  const uint64_t room = bytes > workspace ? (bytes - workspace) / 8 : 0;
  int64_t side = kMostSide;
  while (side >= kLeastSide && uint64_t{12} * uint64_t(side) * uint64_t(side) > room) side /= 2;
  return side;
}

void measure(at::Device device, at::ScalarType type, int64_t side, Machine* machine) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(type);
  const at::Tensor a = at::ones({side, side}, options), b = at::ones({side, side}, options);
  at::Tensor product = at::empty({side, side}, options);
  const double n = double(side);
  machine->flops = 2 * n * n * n / seconds_of([&] { at::mm_out(product, a, b); });
  const double moved = 2.0 * double(product.nbytes());
  machine->memory_bytes_per_second = moved / seconds_of([&] { product.copy_(a); });
  const at::Tensor host = at::ones({std::min(kCopied, side * side)}, at::TensorOptions().dtype(type));
  at::Tensor there = product.view({-1}).narrow(0, 0, host.numel());
  const double both = seconds_of([&] {
    there.copy_(host);
    host.copy_(there);
  });
  machine->host_bytes_per_second = 2.0 * double(host.nbytes()) / both;
  const at::Tensor sums = at::ones({kSummed}), others = at::ones({kSummed});
  machine->host_memory_bytes_per_second =
      3.0 * double(sums.nbytes()) / seconds_of([&] { sums.add_(others); });
}

}  // namespace

const char* name_of(RatesFrom from) {
  constexpr const char* kNames[] = {"as measured", "not measured, because the card is simulated",
                                    "not measured, because the limit has no room for it",
                                    "not measured, because there is no card"};
  return kNames[static_cast<size_t>(from)];
}

bool on_simulated_card() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const bool found = ::dlsym(driver, "spillway_simulator_control") != nullptr;
  ::dlclose(driver);
  return found;
}

void measure_peer_rate(at::Device device, at::Device peer, Machine* machine) {
  const at::NoGradGuard no_grad;
  const at::Tensor here = at::ones({kCopied}, at::device(device).dtype(at::kFloat));
  at::Tensor there = at::empty({kCopied}, at::device(peer).dtype(at::kFloat));
  machine->peer_bytes_per_second = double(here.nbytes()) / seconds_of([&] { there.copy_(here); });
}

RatesFrom measure_rates(at::Device device, at::ScalarType type, uint64_t bytes, Machine* machine) {
  if (!device.is_cuda()) return RatesFrom::kNoCard;
  if (on_simulated_card()) return RatesFrom::kSimulatedCard;
  const int64_t side = side_within(bytes, machine->workspace_bytes);
  if (side < kLeastSide) return RatesFrom::kNoRoom;
  measure(device, type, side, machine);
  c10::cuda::CUDACachingAllocator::emptyCache();
  return RatesFrom::kMeasured;
}

}  // namespace spillway::trainer
