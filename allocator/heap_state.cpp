#include "allocator/heap_state.h"

namespace spillway {

thread_local bool inside_handler = false;

HeapState::HeapState(AllocatorContext& context, std::unique_ptr<Device> opened, uint64_t first_order)
    : shared(context),
      device(std::move(opened)),
      device_index(static_cast<uint8_t>(device->id())),
      page_bytes(device->page_bytes()),
      order(first_order),
      tiling(device_index, page_bytes, context.streams, context.driver_memory),
      pages(Quota(device_index, context.budget, context.guests[device_index])),
      handles(page_bytes, context.handle_rule),
      tiers(context),
      step_clock(context.table) {
  tiling.follow_pins(&context.pins);
}

uint64_t HeapState::need() const {
  const uint64_t all = usage.live().bytes + usage.pending().bytes;
  const uint64_t elsewhere = tiers.spilled.bytes();
  return all > elsewhere ? all - elsewhere : 0;
}

BlockInfo HeapState::info(const Block* block) const {
  const Arena& arena = tiling.arena_of(block);
  BlockInfo out;
  out.device = device->id();
  out.address = block->address;
  out.bytes = block->size;
  out.stream = arena.stream();
  out.pool = arena.pool();
  if (block->state == BlockState::kLive) out.use = BlockUse::kLive;
  if (block->state == BlockState::kPending) out.use = BlockUse::kPending;
  if (out.use != BlockUse::kFree) out.requested_bytes = block->tag;
  return out;
}

}  // namespace spillway
