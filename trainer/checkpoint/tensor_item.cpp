#include "trainer/checkpoint/tensor_item.h"

#include <cstring>
#include <utility>

namespace spillway::trainer {

const char* name_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kByte:
      return "U8";
    case at::kChar:
      return "I8";
    default:
      return nullptr;
  }
}

safetensors::Item item_of(std::string name, const at::Tensor& tensor) {
  return {std::move(name), name_of(tensor.scalar_type()), tensor.sizes().vec(),
          [tensor](std::span<std::byte> bytes) {
            const at::Tensor host = tensor.detach().cpu().contiguous();
            std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
          }};
}

}  // namespace spillway::trainer
