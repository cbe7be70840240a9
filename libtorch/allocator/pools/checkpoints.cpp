// Checkpoints of a private pool: which of its addresses are live, put back before another graph is captured
// into the pool. Between the two a replayed graph has made tensors at addresses that the allocator thinks are
// free, and tensors have died that it thinks are live.
#include <bit>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/pools/segments.h"

namespace spillway::libtorch {
namespace {

struct PoolState final : native::AllocatorState {
  c10::cuda::MempoolId_t pool;
  std::vector<spillway_block_info> live;
};

std::vector<spillway_block_info> live_in(const std::vector<Segment>& segments, uint64_t pool) {
  std::vector<spillway_block_info> live;
  for (const Segment& segment : segments)
    for (const spillway_block_info& block : segment.blocks)
      if (block.pool == pool && block.state == static_cast<uint32_t>(BlockState::kLive))
        live.push_back(block);
  return live;
}

}  // namespace

std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex index,
                                                                      c10::cuda::MempoolId_t pool) {
  const uint64_t number = device(index).pools.number_of(pool);
  TORCH_CHECK(number != 0, "getCheckpointState: device ", static_cast<int>(index), " has no memory pool (",
              pool.first, ", ", pool.second, ")");
  auto state = std::make_shared<PoolState>();
  state->pool = pool;
  state->live = live_in(segments_of(index), number);
  return state;
}

native::CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex index,
                                                          std::shared_ptr<native::AllocatorState> state) {
  const auto wanted = std::dynamic_pointer_cast<PoolState>(state);
  TORCH_CHECK(wanted != nullptr, "setCheckpointPoolState: the state is not one of Spillway's allocator");
  const uint64_t number = device(index).pools.number_of(wanted->pool);
  TORCH_CHECK(number != 0, "setCheckpointPoolState: the memory pool was released since");
  const Listeners::Call call(listeners_.history().gather(native::RecordContext::STATE));
  native::CheckpointDelta delta;
  for (const spillway_block_info& block : live_in(segments_of(index), number)) {
    auto* address = std::bit_cast<void*>(block.address);
    if (core().table->free(address, nullptr) == SPILLWAY_OK) delta.ptrs_freed.push_back(address);
  }
  for (const spillway_block_info& block : wanted->live) {
    auto* address = std::bit_cast<void*>(block.address);
    const spillway_status status =
        core().table->allocate_at(index, block.stream, number, block.requested_bytes, address);
    TORCH_CHECK(status == SPILLWAY_OK, "setCheckpointPoolState: the block at ", address, " of ", block.bytes,
                " bytes cannot be put back: ", core().last_error());
    delta.dataptrs_allocd.emplace_back(address, address, raw_deleter(),
                                       c10::Device(c10::DeviceType::CUDA, index));
  }
  return delta;
}

}  // namespace spillway::libtorch
