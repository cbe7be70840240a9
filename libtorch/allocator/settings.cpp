#include "libtorch/allocator/settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

namespace spillway::libtorch {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

namespace {

// Since 2.12.
template <class Cuda>
bool throws_early() {
  if constexpr (requires { Cuda::throw_on_cudamalloc_oom(); }) return Cuda::throw_on_cudamalloc_oom();
  return false;
}

}  // namespace

void Settings::read() {
  const std::vector<size_t>& divisions = Config::roundup_power2_divisions();
  divides_ = std::any_of(divisions.begin(), divisions.end(), [](size_t parts) { return parts > 1; });
  oversize_ = Config::max_split_size();
  rejects_ = throws_early<c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig>();
}

// PyTorch calls the hook after it has read what all kinds of devices share. It may refuse the rest: what it
// read until then holds, as natively.
void Settings::follow() {
  read();
  auto& hook = Config::getConfigParserHook();
  hook = [this, before = hook](const std::string& settings) {
    read();
    if (before) before(settings);
    read();
  };
}

double Settings::fraction_at_start() {
  return c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::per_process_memory_fraction();
}

// The next of the equal steps between two powers of two, as natively.
uint64_t Settings::padded(uint64_t bytes) const {
  constexpr uint64_t kUnit = c10::CachingAllocator::kMinBlockSize;
  const uint64_t rounded = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  const size_t parts = Config::roundup_power2_divisions(bytes);
  if (bytes < kUnit || parts <= 1 || bytes <= kUnit * parts) return rounded;
  const uint64_t step = std::bit_floor(bytes) / std::bit_floor(parts);
  return (bytes + step - 1) / step * step;
}

}  // namespace spillway::libtorch
