// Copies whose direction is named or found from the pointers.
//
// Thread-safety: as the CUDA calls. Errors: as cudaMemcpy's.
#pragma once
#include <cuda_runtime_api.h>

namespace spillway::runtime {

// Copies on `stream`, and where `wait` is set returns only when the copy is done, as cudaMemcpy does.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool wait);

}  // namespace spillway::runtime
