// Which places of the program allocated the blocks that are live, as far as it is told.
#include <new>

#include "allocator/heap.h"

namespace spillway {

Status DeviceHeap::set_site(Block* block, uint64_t address, uint64_t site, uint64_t bytes) {
  if (forked()) return Status::kUnavailable;
  trace::Record record;
  {
    const Locked guard(lock_);
    if (block->address != address || block->state != BlockState::kLive) return Status::kNotFound;
    record.order = ++order_;
    try {
      holders_.add(block, site, bytes, record.order);
    } catch (const std::bad_alloc&) {
      return Status::kUnavailable;
    }
    block->shared |= kSited;
  }
  record.kind = trace::Kind::kSite;
  record.address = address;
  record.bytes = bytes;
  record.detail = site;
  record.device = device_index_;
  if (trace::Trace* trace = allocator_.trace()) trace->write(record);
  return Status::kOk;
}

void DeviceHeap::forget_site(Block* block) {
  holders_.remove(block);
  block->shared = static_cast<uint8_t>(block->shared & ~kSited);
}

std::vector<SiteHolding> DeviceHeap::holders() {
  if (forked()) return {};
  try {
    std::vector<Holders::Held> held;
    {
      const Locked guard(lock_);
      held = holders_.copy();
    }
    return Holders::sums(held);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace spillway
