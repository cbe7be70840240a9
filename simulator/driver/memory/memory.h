// Device memory in one piece, as cuMemAlloc and cuMemAllocAsync give it.
//
// Thread-safety: used under the simulator's lock. Ownership: the program frees. Errors: CUresult. Units:
// bytes.
#pragma once
#include "simulator/driver/machine/state.h"

namespace spillway::simulator {

// `prepaid`: what of it the pool has charged already; 0 afterwards if that was taken over.
CUresult allocate_device(Device& device, uint64_t bytes, Pool* pool, Site site, CUdeviceptr* out,
                         uint64_t* prepaid = nullptr);
// The same at the addresses of an allocation node, for its device's graphs.
CUresult allocate_range(const std::shared_ptr<GraphRange>& range, Site site, uint64_t* prepaid);
// Shows memory of another process; cuIpcCloseMemHandle ends that.
CUresult map_imported(Page* page, uint64_t bytes, Site site, CUdeviceptr* out);
// Memory that cuIpcGetMemHandle gives a handle for: one piece, of cuMemAlloc.
bool is_legacy_shareable(const Mapping& mapping);
// The allocation that starts at an address; else end() and, as nobody frees such an address rightly, a
// violation.
AddressSpace::Mappings::iterator find_allocation(CUdeviceptr address, Site site);
// Frees what came from a pool: the pool keeps the memory. It is in use until `end`.
void free_to_pool(AddressSpace::Mappings::iterator allocation, uint64_t end, Site site);
void free_device(AddressSpace::Mappings::iterator allocation, Site site);
// Frees in the order of a stream: other streams' work in flight there is a violation.
CUresult free_in_order(CUdeviceptr address, Stream& stream, Site site);
// From a pool, and for a graph: what the pool, or the device for its graphs, keeps is used first.
CUresult allocate_from(Pool& pool, uint64_t bytes, Site site, CUdeviceptr* out);
CUresult allocate_for_graph(const std::shared_ptr<GraphRange>& range, Site site);
uint64_t kept_bytes(const Pool& pool);
// Gives memory back until `least` bytes are reserved, or what is left is in use as far as the host knows.
void trim(Pool& pool, uint64_t least);
// At a synchronisation every pool gives back what it keeps beyond its release threshold.
void release_from_pools();

}  // namespace spillway::simulator
