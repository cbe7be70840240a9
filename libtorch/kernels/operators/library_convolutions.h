// cuDNN's convolutions by their own names, and CUDA's for single channels.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_library_convolutions(OwnKernels& library);

}  // namespace spillway::kernels
