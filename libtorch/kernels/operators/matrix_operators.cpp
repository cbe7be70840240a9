#include "libtorch/kernels/operators/matrix_operators.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addmv_cuda_dispatch.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/baddbmm_cuda_dispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_cuda_dispatch.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cuda_dispatch.h>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/recording.h"
#include "libtorch/kernels/simulator.h"

namespace spillway::kernels {
namespace {

// PyTorch's CUDA code, for the memory that it takes. Undefined where a graph's launch has nothing to write.
template <class Function>
at::Tensor without_values(const Function& by_cuda) {
  if (is_replaying()) return replayed_results().front();
  const StandIn quiet;
  return by_cuda();
}

using Product = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
using ProductInto = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&);

template <Product kByCuda, ProductInto kByCpu>
at::Tensor product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = without_values([&] { return kByCuda(a, b); });
  if (!result.defined()) return result;
  Call call(name);
  const at::Tensor x = call.argument(a);
  const at::Tensor y = call.argument(b);
  at::Tensor values = call.argument(result, /*writes=*/true);
  call.begin();
  kByCpu(values, x, y);
  call.end();
  call.finish();
  return result;
}

using Sum = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&,
                           const at::Scalar&);
using SumInto = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Scalar&, const at::Scalar&);

template <Sum kByCuda, SumInto kByCpu>
at::Tensor sum(const char* name, const at::Tensor& added, const at::Tensor& a, const at::Tensor& b,
               const at::Scalar& beta, const at::Scalar& alpha) {
  at::Tensor result = without_values([&] { return kByCuda(added, a, b, beta, alpha); });
  if (!result.defined()) return result;
  Call call(name);
  const at::Tensor c = call.argument(added);
  const at::Tensor x = call.argument(a);
  const at::Tensor y = call.argument(b);
  at::Tensor values = call.argument(result, /*writes=*/true);
  call.begin();
  kByCpu(values, c, x, y, beta, alpha);
  call.end();
  call.finish();
  return result;
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  return product<&at::cuda::mm, &at::mm_out>("aten::mm", a, b);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
  return product<&at::cuda::bmm, &at::bmm_out>("aten::bmm", a, b);
}

at::Tensor addmm(const at::Tensor& added, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  return sum<&at::cuda::addmm, &at::addmm_out>("aten::addmm", added, a, b, beta, alpha);
}

at::Tensor addmv(const at::Tensor& added, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  return sum<&at::cuda::addmv, &at::addmv_out>("aten::addmv", added, a, b, beta, alpha);
}

at::Tensor baddbmm(const at::Tensor& added, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  return sum<&at::cuda::baddbmm, &at::baddbmm_out>("aten::baddbmm", added, a, b, beta, alpha);
}

}  // namespace

void register_matrix_operators(OwnKernels& library) {
  library.impl("mm", &mm);
  library.impl("bmm", &bmm);
  library.impl("addmm", &addmm);
  library.impl("addmv", &addmv);
  library.impl("baddbmm", &baddbmm);
}

}  // namespace spillway::kernels
