#include "libtorch/allocator/install.h"

#include "libtorch/allocator/allocator.h"

namespace spillway::libtorch {

std::string install_allocator() {
  native::CUDAAllocator* before = native::allocator.load();
  if (before == nullptr)
    return "LibTorch's CUDA part is not loaded: use a CUDA build of PyTorch, or import torch first";
  if (before->name() != "native") {
    return "another allocator ('" + before->name() + "') already stands in for PyTorch's: remove it first";
  }
  if (before->initialized()) {
    return "CUDA is already initialised: call spillway.install() before the first use of a CUDA device";
  }
  // Never destroyed: tensors outlive static destruction.
  auto* allocator = new Allocator(before);
  c10::SetAllocator(c10::DeviceType::CUDA, allocator);
  native::allocator.store(allocator);
  return "";
}

}  // namespace spillway::libtorch
