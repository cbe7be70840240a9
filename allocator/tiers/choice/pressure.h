// What is learnt of a device and of the program's uses once memory becomes short.
//
// Thread-safety: any thread, without the heap's lock.
#pragma once
#include "allocator/heap_state.h"

namespace spillway {

// Asked where the device's memory grows, and when a request `failed`: what is queued gets marks from when
// half of the limit is held, and uses are learnt from when most of it is.
void learn_under_pressure(HeapState& heap, bool failed);
// The device's clock at this place in the order.
void read_clock(HeapState& heap);
// Which other devices' memory this one can use.
void find_peers(HeapState& heap);

}  // namespace spillway
