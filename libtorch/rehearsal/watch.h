// Attaches the probe to PyTorch's CUDA allocator, whichever it is.
//
// Thread-safety: `watch_allocator` by one thread, once the allocator is initialised. Errors: what the
// allocator does not support is kept as the state's `problem`.
#pragma once

namespace spillway::rehearsal {

bool allocator_is_ready();
void watch_allocator();

}  // namespace spillway::rehearsal
