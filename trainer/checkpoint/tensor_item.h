// A tensor of LibTorch's as an item of a safetensors file.
#pragma once
#include <string>
#include <utility>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

// As the format names it, such as "F32"; nullptr for a type that is never saved.
const char* name_of(at::ScalarType type);

// The item shares the tensor; it is copied to the host when it is written.
safetensors::Item item_of(std::string name, const at::Tensor& tensor);

}  // namespace spillway::trainer
