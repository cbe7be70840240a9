// Attaches the probe to PyTorch's CUDA allocator, whichever it is.
//
// Thread-safety: `watch_allocator` by one thread, once the allocator is initialised. Errors: what the
// allocator does not support is kept as the state's `problem`.
#pragma once

namespace spillway::rehearsal {

bool allocator_is_ready();
void watch_allocator();
// Has the allocator gather stacks, also after the program has ended a history of its own. From any thread.
void keep_stacks();

}  // namespace spillway::rehearsal
