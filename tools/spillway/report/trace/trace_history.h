// A trace of Spillway's as a history of memory, the model that PyTorch's snapshots give too.
//
// Blocks and pages are rebuilt forwards, from the oldest record that the file still has.
//  - A ring keeps its newest records. A block that was allocated before them is known if it was freed within
//    the history. Otherwise only its bytes are known, from the allocator's own counts: `unknown_bytes`.
//  - Records have an order and, but for failures, the steps' beginnings and the samples of memory, no clock.
//    `microseconds` lies between those by the order; it stands still before the first and after the last of
//    them, and is 0 where there is none. So it never falls, and `step_events` tells steps without it.
//  - Only a failure that was not rescued is `kOutOfMemory`; a rescued request is served by the event that
//    follows.
//  - What was free at a failure is the allocator's room less the pages that are mapped: pages without a place
//    count as free. Where the ring has lost records it is what the allocator counted as free.
//  - Memory that was moved off the card counts as if it were still there. Idle memory of pools is not told
//    apart, requests are.
//
// Thread-safety: pure functions. Ownership: the history keeps the texts that it needs of `contents`. Errors:
// a record that makes no sense is counted in `passed_over`; what is missing is said in `incomplete`. Units:
// bytes, microseconds.
#pragma once
#include <string_view>
#include <vector>

#include "tools/spillway/history/history.h"
#include "trace/reader.h"

namespace spillway::tools {

MemoryHistory history_of(const trace::Contents& contents);
// The same, while the records' memory goes back to the system as they are read: history and records of a
// large trace are 1 GB together. `contents` has no records then.
MemoryHistory take_history(trace::Contents* contents);

// What a stack's text in the side table says, innermost frame first: a line a frame, "file:line function".
// The frames are views of `text`.
std::vector<StackFrame> frames_of(std::string_view text);

}  // namespace spillway::tools
