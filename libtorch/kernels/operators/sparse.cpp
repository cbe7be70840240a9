#include "libtorch/kernels/operators/sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

namespace spillway::kernels {
namespace {

at::SparseTensorImpl* coo(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

bool is_compressed(at::Layout layout) {
  return layout == at::kSparseCsr || layout == at::kSparseCsc || layout == at::kSparseBsr ||
         layout == at::kSparseBsc;
}

void check_layout(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kSparse || is_compressed(tensor.layout()),
                              "tensors with layout ", tensor.layout(),
                              " cannot be computed with on a simulated CUDA device");
}

}  // namespace

SparseParts parts_of(const at::Tensor& sparse) {
  check_layout(sparse);
  if (sparse.layout() == at::kSparse) return {{coo(sparse)->indices(), coo(sparse)->values()}, 2};
  const auto* impl = compressed(sparse);
  return {{impl->compressed_indices(), impl->plain_indices(), impl->values()}, 3};
}

void assign(const at::Tensor& sparse, const SparseParts& parts, const at::Tensor& like) {
  if (like.layout() == at::kSparse) {
    auto* impl = coo(sparse);
    impl->raw_resize_(coo(like)->sparse_dim(), coo(like)->dense_dim(), like.sizes());
    impl->set_indices_and_values_unsafe(parts.tensors[0], parts.tensors[1]);
    impl->set_coalesced(coo(like)->coalesced());
  } else {
    compressed(sparse)->set_member_tensors(parts.tensors[0], parts.tensors[1], parts.tensors[2],
                                           like.sizes());
  }
}

at::Tensor sparse_of(const SparseParts& parts, const at::Tensor& like) {
  check_layout(like);
  const c10::Device device = parts.tensors[0].device();
  const bool cuda = device.is_cuda();
  at::Tensor made;
  if (like.layout() == at::kSparse) {
    made = at::detail::make_tensor<at::SparseTensorImpl>(
        c10::DispatchKeySet(cuda ? c10::DispatchKey::SparseCUDA : c10::DispatchKey::SparseCPU), like.dtype());
  } else {
    made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        c10::DispatchKeySet(cuda ? c10::DispatchKey::SparseCsrCUDA : c10::DispatchKey::SparseCsrCPU), device,
        like.layout(), like.dtype());
  }
  assign(made, parts, like);
  return made;
}

}  // namespace spillway::kernels
