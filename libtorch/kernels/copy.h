// Copies between devices, between host and device, and reads of single values.
#pragma once
#include <torch/library.h>

namespace spillway::kernels {

void register_copies(torch::Library& library);

}  // namespace spillway::kernels
