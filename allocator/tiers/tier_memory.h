// Memory of other tiers for blocks' bytes: made, kept for the next spill, given back.
//
// Thread-safety: any thread, in the device's context, without the heap's lock. Ownership: of the host memory
// that blocks have left; what is in use belongs to who took it. Errors: CUresult. Units: bytes.
#pragma once
#include "allocator/context.h"
#include "allocator/tiers/host/host_memory.h"
#include "allocator/tiers/spilled_blocks.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

class TierMemory {
 public:
  TierMemory(Device& device, AllocatorContext& shared) : device_(device), shared_(shared), host_(device) {}

  // Host or peer memory for a range.
  CUresult make(const SpillPlace& where, uint64_t bytes, std::vector<driver::Page>* out);
  void give_back(const Piece& piece);
  void give_back(const std::vector<PageFile::Stored>& stored);

  HostMemory& host() { return host_; }
  const HostMemory& host() const { return host_; }

 private:
  Device& device_;
  AllocatorContext& shared_;
  HostMemory host_;
};

}  // namespace spillway
