// Which places of the program allocated the blocks that are live, as far as it is told.
#include <new>

#include "allocator/heap.h"

namespace spillway {

Status DeviceHeap::set_site(Block* block, uint64_t address, uint64_t site, uint64_t bytes) {
  if (heap_.forked()) return Status::kUnavailable;
  trace::Record record;
  {
    const Locked guard(heap_.lock);
    if (!heap_.is_live(block, address)) return Status::kNotFound;
    record.order = ++heap_.order;
    try {
      heap_.holders.add(block, site, bytes, record.order);
    } catch (const std::bad_alloc&) {
      return Status::kUnavailable;
    }
    block->shared |= kSited;
  }
  record.kind = trace::Kind::kSite;
  record.address = address;
  record.bytes = bytes;
  record.detail = site;
  record.device = heap_.device_index;
  if (trace::Trace* trace = heap_.shared.trace.load(std::memory_order_relaxed)) trace->write(record);
  return Status::kOk;
}

void DeviceHeap::forget_site(Block* block) {
  heap_.holders.remove(block);
  block->shared = static_cast<uint8_t>(block->shared & ~kSited);
}

std::vector<SiteHolding> DeviceHeap::holders() {
  if (heap_.forked()) return {};
  try {
    std::vector<Holders::Held> held;
    {
      const Locked guard(heap_.lock);
      for (const Block* block : heap_.tiling.blocks())
        if (block->state == BlockState::kLive) held.push_back(heap_.holders.of(block));
    }
    return Holders::sums(held);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace spillway
