#include "libtorch/allocator/versions/since_2_13.h"

#if SPILLWAY_LIBTORCH >= 213
#include <c10/cuda/CUDAFunctions.h>

namespace spillway::libtorch {

c10::DataPtr Since2_13::allocateWithAddress(size_t bytes, void* address) {
  void* block = allocate_at(bytes, address);
  TORCH_CHECK(block != nullptr, "allocateWithAddress: ", bytes, " bytes at ", address,
              " are not free memory of the current stream in Spillway's allocator");
  return {block, block, raw_deleter(), c10::Device(c10::DeviceType::CUDA, c10::cuda::current_device())};
}

}  // namespace spillway::libtorch
#endif
