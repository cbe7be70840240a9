#include "trainer/runtime/rates.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>

#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

constexpr int64_t kLeastSide = 512, kMostSide = 4096;
constexpr uint64_t kMostMoved = uint64_t{256} << 20;  // bytes: twice what the largest caches hold
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

double flops_of(const at::TensorOptions& options, int64_t side) {
  const at::Tensor a = at::ones({side, side}, options), b = at::ones({side, side}, options);
  at::Tensor product = at::empty({side, side}, options);
  const double n = double(side);
  return 2 * n * n * n / seconds_of([&] { at::mm_out(product, a, b); });
}

double memory_rate_of(at::Device device, int64_t bytes) {
  const auto options = at::TensorOptions().device(device).dtype(at::kByte);
  const at::Tensor from = at::ones({bytes}, options);
  at::Tensor to = at::empty({bytes}, options);
  return 2.0 * double(bytes) / seconds_of([&] { to.copy_(from); });
}

// As layers and states pass: from and to page-locked memory, and no copy is waited for.
double host_rate_of(const at::TensorOptions& options, int64_t numbers) {
  at::Tensor there = at::ones({numbers}, options);
  at::Tensor host = host_tensor({numbers}, there.scalar_type(), there.device());
  const double both = seconds_of([&] {
    host.copy_(there, /*non_blocking=*/true);
    there.copy_(host, /*non_blocking=*/true);
  });
  return 2.0 * double(host.nbytes()) / both;
}

void measure(at::Device device, at::ScalarType type, const RateSizes& sizes, Machine* machine) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(type);
  machine->flops = flops_of(options, sizes.side);
  machine->memory_bytes_per_second = memory_rate_of(device, sizes.copied_bytes);
  machine->host_bytes_per_second = host_rate_of(options, std::min(kCopied, sizes.side * sizes.side));
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

RateSizes rate_sizes(uint64_t bytes, uint64_t workspace) {
  constexpr uint64_t kMost = 2 * kMostMoved;
  uint64_t room = kMost;
  if (bytes != 0) room = std::min(kMost, bytes > workspace ? (bytes - workspace) / 8 : 0);
  int64_t side = kMostSide;
  while (uint64_t{12} * uint64_t(side) * uint64_t(side) > room) side /= 2;
  if (side < kLeastSide) return {};
  return {.side = side, .copied_bytes = int64_t(room / 2)};
}

RatesFrom measure_rates(at::Device device, at::ScalarType type, uint64_t bytes, Machine* machine) {
  if (!device.is_cuda()) return RatesFrom::kNoCard;
  if (on_simulated_card()) return RatesFrom::kSimulatedCard;
  const RateSizes sizes = rate_sizes(bytes, machine->workspace_bytes);
  if (sizes.side == 0) return RatesFrom::kNoRoom;
  measure(device, type, sizes, machine);
  c10::cuda::CUDACachingAllocator::emptyCache();
  return RatesFrom::kMeasured;
}

}  // namespace spillway::trainer
