// What making room is taken to cost until it is measured: offers of strategies are compared by these.
// The driver's calls are medians on data-centre GPUs, for each page of 2 MiB; the rest are typical waits.
//
// Units: microseconds; bytes per microsecond.
#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway::costs {

inline constexpr uint64_t kCreateUs = 29, kMapUs = 2, kSetAccessUs = 36, kUnmapUs = 26, kReleaseUs = 23;
// Another page behind the same address.
inline constexpr uint64_t kRemapUs = kUnmapUs + kMapUs + kSetAccessUs;
// A page goes back to the driver, which makes another.
inline constexpr uint64_t kReplaceUs = kRemapUs + kReleaseUs + kCreateUs;
inline constexpr uint64_t kCostPageBytes = 2 << 20;

// A wait lasts as long as the work before it, most of which has usually run by the time memory is short.
inline constexpr uint64_t kDrainUs = 100, kEventUs = 100;
// All devices idle and the gate closed.
inline constexpr uint64_t kQuiesceUs = 500;
inline constexpr uint64_t kTrimPoolsUs = 2'000;
// A cudaFree of a segment takes about a millisecond, and LibTorch's cache has some dozens of them.
inline constexpr uint64_t kFrameworkCacheUs = 50'000;
// Another process answers on a thread of its own.
inline constexpr uint64_t kOtherProcessUs = 50'000;

// PCIe 3.0 to the host; NVLink; a good NVMe disk.
inline constexpr uint64_t kHostBytesPerUs = 12'000, kPeerBytesPerUs = 100'000, kFileBytesPerUs = 2'000;

// Making pinned host memory: 8 GiB in 2.7 s on an H100's host.
inline constexpr uint64_t kMakeHostBytesPerUs = 3'000;

// The device stands still for a spill, so more goes than is needed: at most this, and a share of the limit.
inline constexpr uint64_t kMostAheadBytes = 256 << 20, kAheadShare = 32;
inline uint64_t ahead_bytes(uint64_t limit_bytes) {
  return std::min(kMostAheadBytes, limit_bytes / kAheadShare);
}

}  // namespace spillway::costs
