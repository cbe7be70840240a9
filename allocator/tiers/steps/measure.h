// The program's steps are timed, from the uses that are known of its blocks or by its own word.
//
// Thread-safety: any thread, without the heap's lock. Errors: none; while a stream is captured nothing is
// timed.
#pragma once
#include "allocator/heap_state.h"

namespace spillway {

// A live block is used: counts the use, and what it costs where the block lies elsewhere.
StepBoundary note_use(HeapState& heap, Block* block, const BlockAccess& access) SPILLWAY_REQUIRES(heap.lock);
// A boundary that was found; none is passed over.
void time_step(HeapState& heap, StepBoundary boundary);
// The program says that a step begins.
void begin_step(HeapState& heap);

}  // namespace spillway
