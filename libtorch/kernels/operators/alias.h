// CPU tensors over the bytes of CUDA tensors.
//
// Thread-safety: free functions; each thread reuses the tensors that it gives back. Ownership: an alias owns
// no bytes: it must die before the tensor that it was made of. Errors: c10::Error.
#pragma once
#include <ATen/core/Tensor.h>

namespace spillway::kernels {

// A CPU tensor with storage of its own over the bytes of `original`'s.
at::Tensor make_alias(const at::Tensor& original, bool writes);

// One that shares the storage of another alias.
at::Tensor make_alias_in(const c10::Storage& storage, const at::Tensor& original);

// Keeps the alias for the next make_alias of this thread, if nobody else holds it.
void give_back(at::Tensor alias) noexcept;

// A tensor with the shape, type and flags of `like` over `storage`.
at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like);

}  // namespace spillway::kernels
