// A library with an operator of its own, as torchvision is one: a CPU kernel that is right, and a CUDA kernel
// that shows by an error that it was called.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

namespace {

at::Tensor times_on_cpu(const at::Tensor& tensor, double factor) {
  TORCH_CHECK(tensor.is_cpu(), "not a CPU tensor");
  return tensor * factor;
}

at::Tensor times_on_cuda(const at::Tensor&, double) {
  TORCH_CHECK(false, "the CUDA kernel was called");
}

at::Tensor on_cuda_alone(const at::Tensor& tensor) {
  return tensor.clone();
}

}  // namespace

TORCH_LIBRARY(spillway_test, library) {
  library.def("times(Tensor tensor, float factor) -> Tensor");
  library.def("times.twice(Tensor tensor) -> Tensor");
  library.def("on_cuda_alone(Tensor tensor) -> Tensor");
}

TORCH_LIBRARY_IMPL(spillway_test, CPU, library) {
  library.impl("times", times_on_cpu);
  library.impl("times.twice", [](const at::Tensor& tensor) { return times_on_cpu(tensor, 2); });
}

TORCH_LIBRARY_IMPL(spillway_test, CUDA, library) {
  library.impl("times", times_on_cuda);
  library.impl("times.twice", [](const at::Tensor& tensor) { return times_on_cuda(tensor, 2); });
  library.impl("on_cuda_alone", on_cuda_alone);
}
