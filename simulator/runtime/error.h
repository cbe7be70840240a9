// The runtime's errors: the driver's results under their runtime names, and the last error of each thread.
//
// Thread-safety: the last error is the calling thread's own. Errors: `fail` is how every entry point returns.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace spillway::runtime {

// The runtime's code of a driver result; cudaErrorUnknown for one that the runtime does not know.
cudaError_t to_runtime(CUresult result);

// True for an error after which every later call of the process fails too: reading it does not clear it.
bool is_sticky(cudaError_t error);

// Remembers `error` as the thread's last one unless it is success, and returns it.
cudaError_t finish(cudaError_t error);

}  // namespace spillway::runtime
