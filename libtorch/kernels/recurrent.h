// Recurrent layers and cells, which run on cuDNN or on fused kernels of PyTorch's own.
//
// The memory is what PyTorch's CUDA code allocates, as that code runs first, on the simulated cuDNN; the
// values come from the CPU's layers, whose temporaries are host memory.
#pragma once
#include <torch/library.h>

namespace spillway::kernels {

void register_recurrent(torch::Library& library);
void register_recurrent_cells(torch::Library& library);

}  // namespace spillway::kernels
