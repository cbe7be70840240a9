// Where nothing is computed (`--values zeros`, `random`): what the simulated driver knows of a tensor's bytes
// (simulator/driver/work/known_bytes.h), as a CPU tensor, and back.
//
// Thread-safety: any thread, after `find_simulator`. Ownership: values own their bytes. Errors: what is not
// known is nullopt. Units: bytes.
#pragma once
#include <ATen/core/Tensor.h>
#include <cuda.h>

#include <cstdint>
#include <optional>

namespace spillway::kernels {

// From the first element of a CUDA tensor to the end of its last.
struct Extent {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// nullopt: the tensor has no dense CUDA memory of its own, as a fake one, a wrapper and a sparse one have
// none.
std::optional<Extent> extent_of(const at::Tensor& tensor);

// Whether programs decide by such values: whole numbers and booleans up to 32 MiB, a few of any other type.
bool may_decide(const at::Tensor& tensor);

// A CPU tensor with the sizes and strides of `tensor`.
std::optional<at::Tensor> known_value(const at::Tensor& tensor);
// One without values, to be overwritten.
at::Tensor value_to_overwrite(const at::Tensor& tensor);

// `value` has the sizes and type of `tensor`; otherwise the tensor is unknown from now on.
void tell_value(const at::Tensor& tensor, const at::Tensor& value);
void forget_value(const at::Tensor& tensor);

}  // namespace spillway::kernels
