// A fuzzer of what lies in several tiers: typed instructions, each of which prints as the line of C++ that
// repeats it.
#pragma once
#include <cstdint>
#include <iterator>
#include <random>
#include <string>

#include "tests/allocator/simulated.h"

namespace spillway::testing::tiers {

enum class Do : uint8_t {
  kAllocate,
  kFree,
  kWrite,     // a kernel that fills the block anew
  kRead,      // one that compares what is there
  kRegister,  // `size` bytes of it at most
  kRemove,
  kTouch,
  kDone,
  kHint,       // the block counts as used
  kBringBack,  // after time in which the devices had room
  kEmptyCache,
  kLimit,
  kCapacity,  // of a device, whatever it holds
  kOthers,    // what other processes take of a device
  kFail,      // a call of the driver, once
  kFileFull,  // a request while the file cannot grow beyond `size`
  kShare,     // as other processes would ask for it
  kFileShort  // touches while the file ends at `size`
};

// What moving calls. Not in it: cuMemRelease of a page, where a failure can only leak.
inline constexpr const char* kFaults[] = {"cuMemCreate",        "cuMemAddressReserve", "cuMemMap",
                                          "cuMemSetAccess",     "cuMemcpyAsync",       "cuEventRecord",
                                          "cuEventCreate",      "cuEventSynchronize",  "cuMemUnmap",
                                          "cuEventElapsedTime", "cuCtxSynchronize",    "cuMemAddressFree",
                                          "cuMemHostAlloc",     "cuStreamSynchronize", "cuMemGetInfo"};

inline constexpr uint32_t kSlots = 28;

struct Instruction {
  Do what;
  uint64_t size;   // bytes, or what the instruction chooses by it
  uint32_t slot;   // which of the program's pointers
  uint32_t where;  // device and stream, and whether the block is not in use afterwards

  bool aside() const { return (where & 4) != 0; }

  std::string print() const {
    static constexpr const char* kNames[] = {"kAllocate",   "kFree",  "kWrite",    "kRead",   "kRegister",
                                             "kRemove",     "kTouch", "kDone",     "kHint",   "kBringBack",
                                             "kEmptyCache", "kLimit", "kCapacity", "kOthers", "kFail",
                                             "kFileFull",   "kShare", "kFileShort"};
    return std::string("{Do::") + kNames[static_cast<int>(what)] + ", " + std::to_string(size) + ", " +
           std::to_string(slot) + ", " + std::to_string(where) + "},";
  }
};

// About twice what the devices hold is asked for, so that most of it has to lie elsewhere. `parts`: how many
// times as small all sizes are; with few pages in a block, several blocks lie on most.
class Generator {
 public:
  explicit Generator(uint64_t seed, uint64_t parts = 1) : random_(seed), parts_(parts) {}

  Instruction next() {
    const uint64_t dice = pick(1000);
    const auto slot = static_cast<uint32_t>(pick(kSlots)), where = static_cast<uint32_t>(pick(8));
    if (dice < 300) return {Do::kAllocate, size(), slot, where};
    if (dice < 430) return {Do::kFree, 0, slot, where};
    if (dice < 520) return {Do::kWrite, 0, slot, where};
    if (dice < 580) return {Do::kRead, 0, slot, where};
    if (dice < 590) return {Do::kShare, 0, slot, where};
    if (dice < 680) return {Do::kRegister, (1 + pick(16)) * kMiB, slot, where};
    if (dice < 700) return {Do::kRemove, 0, slot, where};
    if (dice < 830) return {Do::kTouch, 0, slot, where};
    if (dice < 900) return {Do::kDone, 0, slot, where};
    if (dice < 910) return {Do::kHint, 0, slot, where};
    if (dice < 916) return {Do::kBringBack, 0, slot, where};
    if (dice < 926) return {Do::kEmptyCache, 0, slot, where};
    if (dice < 936) return {Do::kLimit, (24 + pick(32)) * kMiB / parts_, slot, where};
    if (dice < 943) return {Do::kCapacity, (16 + pick(112)) * kMiB, slot, where};
    if (dice < 949) return {Do::kOthers, pick(32) * kMiB, slot, where};
    if (dice < 985) return {Do::kFail, 1 + pick(pick(3) == 0 ? 12 : 2), slot, where};
    if (dice < 990) return {Do::kFileFull, pick(24) * kMiB, slot, where};
    return {Do::kFileShort, pick(8) * kMiB, slot, where};
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t size() {
    const uint64_t kind = pick(8);
    if (kind == 0) return (1 + pick(128)) * 512;
    if (kind == 1) return (1 + pick(12 * kMiB / 512 / parts_)) * 512;
    return (1 + pick(16 * kMiB / 512 / parts_)) * 512;
  }
  std::mt19937_64 random_;
  uint64_t parts_;
};

}  // namespace spillway::testing::tiers
