// Contexts, with which goes what was allocated in them: on the account of native.h.
//
// Thread-safety: any thread. Each function is called after the driver has done it.
#pragma once
#include <cuda.h>

namespace spillway::interpose {

void note_primary_context(CUcontext context, CUdevice device);
void context_gone(CUcontext context);
// Where a primary context is no longer active, what was allocated in it is gone.
void look_at_primary_context(CUdevice device);

}  // namespace spillway::interpose
