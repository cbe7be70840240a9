// Operators that only CUDA or cuDNN has, computed by their CPU equivalents.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_library_operators(OwnKernels& library);

}  // namespace spillway::kernels
