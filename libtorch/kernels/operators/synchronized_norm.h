// The parts of torch.nn.SyncBatchNorm, which PyTorch has for CUDA tensors alone.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_synchronized_norm(OwnKernels& library);

}  // namespace spillway::kernels
