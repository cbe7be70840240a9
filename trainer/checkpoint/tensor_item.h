// A tensor of LibTorch's as an item of a safetensors file.
#pragma once
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

// `type` as the format names it. The item shares the tensor, and copies it to the host when it is written.
safetensors::Item item_of(std::string name, const char* type, const at::Tensor& tensor);

}  // namespace spillway::trainer
