// A fuzzer of the allocator with typed instructions: each prints as the line of C++ that repeats it, so a
// failing case becomes a test by pasting.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/allocator/simulated.h"

namespace spillway::testing {

enum class Do : uint8_t {
  kAllocate,
  kFree,
  kRecord,
  kLaunch,
  kShare,
  kLimit,
  kEmptyCache,
  kPool,
  kSource,  // the pool that has a source is released, and another takes its place
  kFailDriver,
  kFailRequest,
  kCapture,     // begins one, or ends the one that there is
  kJoin,        // another stream joins the capture, by an event that is recorded in it
  kReplay,      // of a graph that was captured, or its end
  kAllocateAt,  // frees a block and asks for its address again
  kFork
};

// Each driver function that the allocator calls again and again; null: any that allocates or maps. Not in it:
// what frees addresses, where a failure can only leak.
inline constexpr const char* kFaults[] = {nullptr,
                                          "cuMemMap",
                                          "cuMemSetAccess",
                                          "cuMemCreate",
                                          "cuMemUnmap",
                                          "cuMemRelease",
                                          "cuMemAddressReserve",
                                          "cuMemAlloc",
                                          "cuMemFree",
                                          "cuMemGetInfo",
                                          "cuMemExportToShareableHandle",
                                          "cuMemImportFromShareableHandle",
                                          "cuMemGetAllocationPropertiesFromHandle",
                                          "cuEventRecord",
                                          "cuEventQuery",
                                          "cuEventSynchronize",
                                          "cuCtxSynchronize",
                                          "cuStreamIsCapturing"};
inline constexpr size_t kMapFault = 1;

struct Instruction {
  Do what;
  uint64_t size;    // bytes, or for faults which call
  uint32_t slot;    // which of the program's pointers; a quarter of them lie in private pools
  uint32_t stream;  // which stream

  std::string print() const {
    static constexpr const char* kNames[] = {
        "kAllocate", "kFree",       "kRecord",      "kLaunch",  "kShare", "kLimit",  "kEmptyCache", "kPool",
        "kSource",   "kFailDriver", "kFailRequest", "kCapture", "kJoin",  "kReplay", "kAllocateAt", "kFork"};
    return std::string("{Do::") + kNames[static_cast<int>(what)] + ", " + std::to_string(size) + ", " +
           std::to_string(slot) + ", " + std::to_string(stream) + "},";
  }
};

// Mostly allocations and frees over three kinds of sizes; now and then something unusual. Phases of many
// small blocks alternate with phases of a few large ones, which are served from several pieces.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Instruction next() {
    constexpr uint64_t kPhase = 1000;
    if (count_++ % kPhase == 0) large_ = pick(3) == 0;
    const uint64_t dice = pick(10000);
    const auto slot = static_cast<uint32_t>(pick(large_ ? 40 : 300));
    const auto stream = static_cast<uint32_t>(pick(10) < 7 ? 0 : pick(3));
    if (dice < 4800) return {Do::kAllocate, size(), slot, stream};
    if (dice < 9210) return {Do::kFree, 0, slot, stream};
    if (dice < 9460) return {Do::kRecord, 0, slot, stream};
    if (dice < 9760) return {Do::kLaunch, 0, slot, stream};
    if (dice < 9810) return {Do::kAllocateAt, 0, slot, stream};
    if (dice < 9870) return {Do::kShare, pick(2), slot, stream};
    if (dice < 9880) return {Do::kCapture, pick(3), slot, 1 + stream % 2};
    if (dice < 9894) return {Do::kJoin, 0, slot, 2 - stream % 2};
    if (dice < 9924) return {Do::kReplay, pick(8), slot, stream};
    if (dice < 9925) return {pick(8) == 0 ? Do::kFork : Do::kLaunch, 0, slot, stream};
    if (dice < 9945) return {Do::kLimit, (24 + pick(200)) << 20, slot, stream};
    if (dice < 9956) return {Do::kEmptyCache, 0, slot, stream};
    if (dice < 9959) return {Do::kPool, pick(8), slot, stream};
    if (dice < 9961) return {Do::kSource, 0, slot, stream};
    if (dice < 9986) return {Do::kFailDriver, 1 + pick(pick(3) == 0 ? 8 : 2), slot, stream};
    return {Do::kFailRequest, 1 + pick(8), slot, stream};
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t size() {
    const uint64_t kind = pick(10);
    if (large_ && kind < 8) return 1 + pick(24 * kMiB);
    if (kind < 4) return 1 + pick(64 * kKiB);
    if (kind < 9) return uint64_t{1} << (12 + pick(10)) | pick(4096);
    return 1 + pick(24 * kMiB);
  }
  std::mt19937_64 random_;
  uint64_t count_ = 0;
  bool large_ = false;
};

}  // namespace spillway::testing
