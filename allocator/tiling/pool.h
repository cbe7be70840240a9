// Pools: blocks that only requests of the same pool reuse. Pool 0 is the device's default pool; any other
// number is private: what it frees stays mapped where it is, because a captured graph may use it at any time.
#pragma once
#include <cstdint>

namespace spillway {

enum PoolFlags : uint32_t {
  // Nobody allocates from it any more, and no graph uses it: its idle pages serve others.
  kPoolReleased = 1,
  // Its free blocks serve the default pool's requests of the same stream that would fail otherwise.
  kPoolLends = 2,
  // Its blocks share no page with each other.
  kPoolWholePages = 4,
  // Each of its blocks is an allocation of the driver's of its own, of whole pages and never split: for who
  // asks the driver about it (cuMemGetAddressRange), shares it by cudaIpcGetMemHandle, or registers it for
  // RDMA. Idle ones serve only their own pool, whole, and go back to the driver once it is released. To be
  // set
  // before the pool's first request, and for good.
  kPoolSingleHandle = 8,
  // Its memory is allocations of the driver's own too, but these are cut into blocks: for who shares a block
  // by
  // cuIpcGetMemHandle, as part of the allocation that it lies in. An idle allocation goes back whole. Its
  // blocks stay where they are. As kPoolSingleHandle, for good.
  kPoolDriverMemory = 16,
  // Its memory is allocations of a source of its own, cut into blocks, or whole with kPoolSingleHandle. They
  // go back to it whole, once the pool is released. Set by set_source alone.
  kPoolOwnSource = 32,
};

inline constexpr uint64_t kEveryPool = UINT64_MAX;

}  // namespace spillway
