// Products of 16 bit matrices with results of 32 bit (`torch.mm(a, b, out_dtype=...)`): CUDA alone has them.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_wide_products(OwnKernels& library);

}  // namespace spillway::kernels
