// Operators that only CUDA or cuDNN has, computed by their CPU equivalents.
#pragma once
#include <torch/library.h>

namespace spillway::kernels {

void register_library_operators(torch::Library& library);

}  // namespace spillway::kernels
