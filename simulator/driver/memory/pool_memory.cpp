// What pools have: memory that is in use, and memory that was freed and is kept. What is kept serves any
// size.
#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

// Takes at most `most` out of what is kept and over at `by`; returns the bytes.
uint64_t take_kept(Pool& pool, uint64_t most, uint64_t by) {
  uint64_t taken = 0;
  for (Pool::Freed& freed : pool.kept) {
    if (freed.end > by) continue;
    const uint64_t bytes = std::min(freed.bytes, most - taken);
    freed.bytes -= bytes;
    taken += bytes;
  }
  std::erase_if(pool.kept, [](const Pool::Freed& freed) { return freed.bytes == 0; });
  return taken;
}

// Takes by `allocate_memory`, which is given what is kept for that; it leaves what it does not need.
template <class Allocate>
CUresult take(Pool& pool, uint64_t bytes, Allocate allocate_memory) {
  const uint64_t most =
      bytes > UINT64_MAX - kGranularity ? 0 : (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const uint64_t kept = take_kept(pool, most, UINT64_MAX);
  uint64_t prepaid = kept;
  const CUresult result = allocate_memory(&prepaid);
  if (prepaid != 0) pool.kept.push_back({prepaid, 0});  // it was refused: the pool has them still
  if (result != CUDA_SUCCESS) {
    pool.reserved_bytes -= kept - prepaid;
    return result;
  }
  pool.used_bytes += bytes;
  pool.reserved_bytes += most - kept;
  pool.used_high_bytes = std::max(pool.used_high_bytes, pool.used_bytes);
  pool.reserved_high_bytes = std::max(pool.reserved_high_bytes, pool.reserved_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

uint64_t kept_bytes(const Pool& pool) {
  uint64_t bytes = 0;
  for (const Pool::Freed& freed : pool.kept) bytes += freed.bytes;
  return bytes;
}

void trim(Pool& pool, uint64_t least) {
  if (pool.reserved_bytes <= least) return;
  const uint64_t bytes = take_kept(pool, pool.reserved_bytes - least, machine().clock.known());
  pool.reserved_bytes -= bytes;
  pool.device->account.give_pages(bytes, Taker::kOther);
}

CUresult allocate_from(Pool& pool, uint64_t bytes, Site site, CUdeviceptr* out) {
  return take(pool, bytes, [&](uint64_t* prepaid) {
    return allocate_device(*pool.device, bytes, &pool, site, out, prepaid);
  });
}

CUresult allocate_for_graph(const std::shared_ptr<GraphRange>& range, Site site) {
  return take(range->device->graph_pool, range->bytes,
              [&](uint64_t* prepaid) { return allocate_range(range, site, prepaid); });
}

CUresult free_in_order(CUdeviceptr address, Stream& stream, Site site) {
  Machine& sim = machine();
  const auto allocation = find_allocation(address, site);
  if (allocation == sim.space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  const Mapping& mapping = allocation->second;
  const uint64_t freed_at = std::max(sim.clock.now(), stream.free_at);
  if (mapping.use.end > freed_at)
    sim.referee.in_flight(
        describe_range(address, mapping.bytes) + " freed on stream " + std::to_string(stream.id), site,
        mapping.use, freed_at);
  if (mapping.pool)
    free_to_pool(allocation, freed_at, site);
  else
    free_device(allocation, site);
  return CUDA_SUCCESS;
}

void free_to_pool(AddressSpace::Mappings::iterator allocation, uint64_t end, Site site) {
  Pool& pool = *allocation->second.pool;
  Page* page = allocation->second.page;
  pool.used_bytes -= allocation->second.requested_bytes;
  pool.kept.push_back({page->bytes, end});
  page->pooled = true;
  free_device(allocation, site);
}

void release_from_pools() {
  Machine& sim = machine();
  for (const auto& device : sim.devices)
    trim(device->default_pool, device->default_pool.release_threshold_bytes);
  for (Pool* pool : sim.pools) trim(*pool, pool->release_threshold_bytes);
}

}  // namespace spillway::simulator
