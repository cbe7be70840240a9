// The program's stream-ordered pools: where an allocation from one takes its bytes, and for the core's
// strategy that trims them.
//
// Thread-safety: any thread. A pool that is being visited is not destroyed meanwhile. A child of fork begins
// with nothing. Errors: what is not known is a pool of the current device.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "interpose/hooks/allocation_size.h"

namespace spillway::interpose {

// -1: a pool of host memory.
void note_pool(uint64_t pool, int device);
void note_pool_used();
// Where an allocation from the pool takes its bytes.
Asked in_pool(uint64_t bytes, uint64_t pool);
// What a pool has of the device beyond what is in use: an allocation takes that first. `pool` 0: the device's
// current one. 0 where the driver does not tell.
uint64_t pool_keeps(uint64_t pool, int device);
// The program destroys the pool: by `destroy`, while nobody looks at it.
CUresult destroy_pool(CUmemoryPool pool, CUresult (*destroy)(CUmemoryPool));

// For the core: whether anything came from a pool, and the pools of a device. What is visited may call the
// driver, but makes and destroys no pool; others that are made meanwhile may be left out.
int pools_used();
void visit_pools(int32_t device, void (*visit)(void* context, uint64_t pool), void* context);

}  // namespace spillway::interpose
