// What a pool's memory is, as its flags say it and as the process wants it.
//
// Thread-safety: values. Errors: none.
#pragma once
#include <cstdint>

#include "allocator/tiling/pool.h"

namespace spillway {

// Whose memory comes as allocations of the driver's own (kPoolDriverMemory), for who shares it by
// cuIpcGetMemHandle.
enum class DriverMemory : uint8_t { kNoPools, kPrivatePools, kEveryPool };

enum class PoolMemory : uint8_t {
  kPages,
  kAllocations,       // of the driver's or of the pool's own source, cut into blocks
  kWholeAllocations,  // one for each block
};

constexpr PoolMemory memory_of_flags(uint32_t flags) {
  if ((flags & kPoolSingleHandle) != 0) return PoolMemory::kWholeAllocations;
  return (flags & (kPoolDriverMemory | kPoolOwnSource)) != 0 ? PoolMemory::kAllocations : PoolMemory::kPages;
}

constexpr uint32_t flags_by_default(DriverMemory whose, uint64_t pool) {
  const bool wanted =
      whose == DriverMemory::kEveryPool || (whose == DriverMemory::kPrivatePools && pool != 0);
  return wanted ? uint32_t{kPoolDriverMemory} : 0;
}

}  // namespace spillway
