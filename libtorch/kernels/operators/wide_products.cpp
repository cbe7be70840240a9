#include "libtorch/kernels/operators/wide_products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "libtorch/kernels/computed.h"

namespace spillway::kernels {
namespace {

using Tensor = at::Tensor;
using Product = Tensor (*)(const Tensor&, const Tensor&);
using Sum = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&);

struct Mm {
  static constexpr const char* kName = "aten::mm.dtype";
  static constexpr Product kByCpu = &at::mm;
};
struct Bmm {
  static constexpr const char* kName = "aten::bmm.dtype";
  static constexpr Product kByCpu = &at::bmm;
};
struct Addmm {
  static constexpr const char* kName = "aten::addmm.dtype";
  static constexpr Sum kByCpu = &at::addmm;
};
struct Baddbmm {
  static constexpr const char* kName = "aten::baddbmm.dtype";
  static constexpr Sum kByCpu = &at::baddbmm;
};

template <class Operator>
Tensor wide_product(const Tensor& a, const Tensor& b, at::ScalarType type) {
  return computed(
      Operator::kName,
      [&](const Tensor& x, const Tensor& y) { return Operator::kByCpu(x.to(type), y.to(type)); }, a, b);
}

template <class Operator>
Tensor& wide_product_out(const Tensor& a, const Tensor& b, at::ScalarType type, Tensor& out) {
  out.copy_(wide_product<Operator>(a, b, type));
  return out;
}

template <class Operator>
Tensor wide_sum(const Tensor& added, const Tensor& a, const Tensor& b, at::ScalarType type,
                const at::Scalar& beta, const at::Scalar& alpha) {
  return computed(
      Operator::kName,
      [&](const Tensor& c, const Tensor& x, const Tensor& y) {
        return Operator::kByCpu(c.to(type), x.to(type), y.to(type), beta, alpha);
      },
      added, a, b);
}

template <class Operator>
Tensor& wide_sum_out(const Tensor& added, const Tensor& a, const Tensor& b, at::ScalarType type,
                     const at::Scalar& beta, const at::Scalar& alpha, Tensor& out) {
  out.copy_(wide_sum<Operator>(added, a, b, type, beta, alpha));
  return out;
}

}  // namespace

void register_wide_products(OwnKernels& library) {
  library.impl("mm.dtype", &wide_product<Mm>);
  library.impl("mm.dtype_out", &wide_product_out<Mm>);
  library.impl("bmm.dtype", &wide_product<Bmm>);
  library.impl("bmm.dtype_out", &wide_product_out<Bmm>);
  library.impl("addmm.dtype", &wide_sum<Addmm>);
  library.impl("addmm.dtype_out", &wide_sum_out<Addmm>);
  library.impl("baddbmm.dtype", &wide_sum<Baddbmm>);
  library.impl("baddbmm.dtype_out", &wide_sum_out<Baddbmm>);
}

}  // namespace spillway::kernels
