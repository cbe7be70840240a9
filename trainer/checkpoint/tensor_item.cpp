#include "trainer/checkpoint/tensor_item.h"

#include <cstring>
#include <utility>

namespace spillway::trainer {

safetensors::Item item_of(std::string name, const char* type, const at::Tensor& tensor) {
  return {std::move(name), type, tensor.sizes().vec(), [tensor](std::span<std::byte> bytes) {
            const at::Tensor host = tensor.detach().cpu().contiguous();
            std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
          }};
}

}  // namespace spillway::trainer
