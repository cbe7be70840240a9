// The one core in the process: libspillway.so beside this library, loaded when it is first needed.
//
// Thread-safety: any thread. Errors: null where it cannot be loaded or is of another version, said once.
#pragma once
#include "strategies/core/core.h"

namespace spillway::interpose {

struct ProcessSummary;

const spillway_core_table* core();
// Why the core refused the calling thread's last call.
const char* core_error();
// Memory that must stay where it is, counted by address. False: the core is not loaded.
bool pin(uint64_t address, uint64_t bytes);
void unpin(uint64_t address);
// Whether the address lies in a block of Spillway's allocator. Does not load the core.
bool is_block(uint64_t address);
// Puts the path of the core's trace into the summary; for after its start.
void note_trace();
// In a child of fork: the core, if its parent has started it, counts in `slot` from now on, which gets the
// child's own trace.
void count_in(ProcessSummary& slot);

}  // namespace spillway::interpose
