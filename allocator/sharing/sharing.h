// Pages that other processes or other devices use too: descriptors of ours, mappings of theirs, access.
//
// Thread-safety: any thread, without the heap's lock. For the contract see Allocator.
#pragma once
#include <span>
#include <string>

#include "allocator/sharing/imports.h"
#include "allocator/streams/drain.h"
#include "allocator/tiers/before_use/block_returns.h"

namespace spillway {

class Sharing {
 public:
  Sharing(HeapState& heap, Drain& drain, BlockReturns& returns)
      : heap_(heap),
        returns_(returns),
        imports_(*heap.device, heap.mappings_mutex, [&drain] { return drain.device(); }) {}

  Status share(Block* block, uint64_t address, SharedBlock* out, std::string* text);
  int descriptor(uint64_t serial);
  Status map(std::span<const SharedPage> pages, uint64_t* address, std::string* text);
  bool unmap(uint64_t address);
  Status grant(DeviceId peer, std::string* text);
  // Nobody maps anything any more. Not in a forked child.
  void end();

 private:
  Status share_here(Block* block, uint64_t address, SharedBlock* out, std::string* text);
  CUresult export_page(CUmemGenericAllocationHandle page, int* descriptor);
  // Whether `device` has atomic operations on this one's memory, but not on all to which blocks were moved.
  bool would_lose_atomics(DeviceId device) const;
  CUresult grant_everywhere(const CUmemAccessDesc& access)
      SPILLWAY_REQUIRES(imports_.mutex(), heap_.mappings_mutex);

  HeapState& heap_;
  BlockReturns& returns_;
  Imports imports_;
  Mutex<LockOrder::kShare> one_at_a_time_;
};

}  // namespace spillway
