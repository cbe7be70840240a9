// Recurrent layers and cells, which run on cuDNN or on fused kernels of PyTorch's own.
//
// The memory is what PyTorch's CUDA code allocates, as that code runs first, on the simulated cuDNN; the
// values come from the CPU's layers, whose temporaries are host memory.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_recurrent(OwnKernels& library);
void register_recurrent_cells(OwnKernels& library);

}  // namespace spillway::kernels
