// Memory of other tiers for blocks' bytes: made, kept for the next spill, given back.
//
// Thread-safety: any thread, in the device's context, without the heap's lock. Ownership: of the host memory
// that blocks have left; what is in use belongs to who took it. Errors: CUresult. Units: bytes.
#pragma once
#include "allocator/context.h"
#include "allocator/tiers/pinned_host_cache.h"
#include "allocator/tiers/spilled_blocks.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

class TierMemory {
 public:
  TierMemory(Device& device, AllocatorContext& shared) : device_(device), shared_(shared), host_(device) {}

  // Host or peer memory for a range. Host memory that an earlier block of that size has left is used first.
  // Other left host memory is released where the place's budget needs it.
  CUresult make(const SpillPlace& where, uint64_t bytes, CUmemGenericAllocationHandle* handle);
  void give_back(const Piece& piece);
  void give_back(const std::vector<PageFile::Stored>& stored);

  uint64_t kept_host_bytes() const { return host_.bytes(); }
  // Host memory that blocks have left goes back to the driver.
  void release_kept() { host_.shrink(0); }

 private:
  Device& device_;
  AllocatorContext& shared_;
  PinnedHostCache host_;
};

}  // namespace spillway
