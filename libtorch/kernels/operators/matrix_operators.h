// Matrix products: CUDA's own function runs on the simulated cuBLAS for its memory (the result, copies of
// operands, workspaces, handles), then the CPU's kernel writes the values into its result.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_matrix_operators(OwnKernels& library);

}  // namespace spillway::kernels
