// Looks the driver's functions up as a CUDA runtime that is linked statically does: dlopen, dlsym of
// cuGetProcAddress, and everything else through that. An archive: nothing can stand in for its own functions.
#pragma once

// Null where the driver has no such function for that version of CUDA.
void* static_runtime_find(const char* name, int cuda_version, bool per_thread_stream, bool with_status);
