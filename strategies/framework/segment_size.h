// What LibTorch's own allocator asks the driver for, where it has nothing for a request: segments are larger.
// As it is unless settings such as expandable_segments or large_segment_size_mb change it. Pure; any number
// is answered.
#pragma once
#include <cstdint>

namespace spillway {

constexpr uint64_t native_segment_bytes(uint64_t request_bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20, kUnit = 2 * kMiB;
  if (request_bytes <= kMiB) return kUnit;
  if (request_bytes < 10 * kMiB) return 20 * kMiB;
  return request_bytes > UINT64_MAX - kUnit ? request_bytes : (request_bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace spillway
