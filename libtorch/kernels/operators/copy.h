// Copies between devices, between host and device, and reads of single values.
#pragma once
#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

void register_copies(OwnKernels& library);

}  // namespace spillway::kernels
