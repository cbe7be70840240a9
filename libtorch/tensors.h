// The tensors in an operator's arguments and results.
//
// Thread-safety: none needed; an IValue is its caller's.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>

namespace spillway::libtorch {

// One after the other, those of lists too; what is no tensor is passed over.
template <class Use>
void for_each_tensor(const c10::IValue& value, Use use) {
  if (value.isTensor()) {
    use(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) use(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) use(*tensor);
  }
}

}  // namespace spillway::libtorch
