#include "libtorch/allocator/settings.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "libtorch/allocator_config.h"

namespace spillway::libtorch {

namespace {

// Since 2.10.
template <class Cuda>
double fraction_set() {
  if constexpr (requires { Cuda::per_process_memory_fraction(); }) return Cuda::per_process_memory_fraction();
  return 1;
}

// PyTorch calls the hook after it has read what all kinds of devices share. It may refuse the rest: what it
// read until then holds, as natively. 2.10 shows nobody its hook, and has never another than CUDA's; older
// versions have none. False where nobody tells of changes.
template <class All, class Cuda>
bool follow_changes(const std::function<void()>& read) {
  if constexpr (requires { All::getConfigParserHook(); }) {
    auto& hook = All::getConfigParserHook();
    hook = [read, before = hook](const std::string& settings) {
      read();
      if (before) before(settings);
      read();
    };
    return true;
  } else if constexpr (requires { All::registerDeviceConfigParserHook({}, {}); }) {
    const auto follow = [read](const std::string& settings) {
      read();
      Cuda::instance().parseArgs(settings);
      read();
    };
    All::registerDeviceConfigParserHook(follow, {});
    return true;
  }
  return false;
}

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
  oversize_ = smallest_oversize();
  rejects_ = throws_early<CudaConfig>();
}

void Settings::follow() {
  read();
  told_ = follow_changes<Config, CudaConfig>([this] { read(); });
  if (!told_) divides_ = true;
}

size_t Settings::divisions(uint64_t bytes) {
  return Config::roundup_power2_divisions(bytes);
}

uint64_t Settings::smallest_oversize() {
  return Config::max_split_size();
}

double Settings::fraction_at_start() {
  return fraction_set<CudaConfig>();
}

// The next of the equal steps between two powers of two, as natively.
uint64_t Settings::padded(uint64_t bytes) const {
  constexpr uint64_t kUnit = kMinBlockSize;
  const uint64_t rounded = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  const size_t parts = divisions(bytes);
  if (bytes < kUnit || parts <= 1 || bytes <= kUnit * parts) return rounded;
  const uint64_t step = std::bit_floor(bytes) / std::bit_floor(parts);
  return (bytes + step - 1) / step * step;
}

}  // namespace spillway::libtorch
