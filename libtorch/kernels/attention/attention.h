// Scaled-dot-product attention: the entries that CUDA chooses (flash, efficient, cuDNN), none of which has a
// CPU kernel.
//
// Without dropout the CPU's flash kernel computes them, so that the values are the CPU's own. Dropout, a
// gradient for the bias, and value heads of another size than the keys' take plain matrix products.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_attention(OwnKernels& library);

}  // namespace spillway::kernels
