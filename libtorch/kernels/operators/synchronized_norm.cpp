#include "libtorch/kernels/operators/synchronized_norm.h"

#include <ATen/ops/full.h>

#include <tuple>
#include <vector>

#include "libtorch/kernels/computed.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Undefined where none is given.
at::Tensor given(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

// All dimensions but that of the channels.
std::vector<int64_t> within_a_channel(const at::Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// `of_channels` [C] in a shape that broadcasts with `input` [N, C, ...].
at::Tensor beside(const at::Tensor& of_channels, const at::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = -1;
  return of_channels.view(shape);
}

// Statistics of 16 bit inputs are of 32 bit.
at::ScalarType type_of_statistics(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Two stats(const at::Tensor& input, double epsilon) {
  return computed(
      "aten::batch_norm_stats",
      [&](const at::Tensor& in) -> Two {
        const at::Tensor x = in.to(type_of_statistics(in));
        const auto dims = within_a_channel(x);
        return {x.mean(dims), x.var(dims, /*unbiased=*/false).add(epsilon).rsqrt()};
      },
      input);
}

// The mean and the biased variance of everything from those of its parts, [parts, C] each, of `counts`
// elements [parts, 1] (Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm").
Two of_all_parts(const at::Tensor& means, const at::Tensor& variances, const at::Tensor& counts) {
  const at::Tensor total = counts.sum();
  const at::Tensor mean = means.mul(counts).sum(0).div(total);
  const at::Tensor squares = variances.add(means.sub(mean).square()).mul(counts).sum(0);
  return {mean, squares.div(total)};
}

void move_towards(const at::Tensor& running, const at::Tensor& value, double momentum) {
  running.mul_(1 - momentum).add_(value.to(running.scalar_type()), momentum);
}

Two gather_stats_with_counts(const at::Tensor&, const at::Tensor& mean, const at::Tensor& invstd,
                             const OptionalTensor& running_mean, const OptionalTensor& running_var,
                             double momentum, double epsilon, const at::Tensor& counts) {
  Call call("aten::batch_norm_gather_stats_with_counts");
  const at::Tensor means = call.argument(mean);
  const at::Tensor inverses = call.argument(invstd);
  const at::Tensor sizes = call.argument(counts);
  const auto kept = [&](const OptionalTensor& running) {
    const at::Tensor tensor = given(running);
    return tensor.defined() ? call.argument(tensor, /*writes=*/true) : tensor;
  };
  const at::Tensor kept_mean = kept(running_mean);
  const at::Tensor kept_variance = kept(running_var);
  call.begin();
  const at::Tensor parts = sizes.to(means.scalar_type()).view({-1, 1});
  const auto [all_mean, variance] = of_all_parts(means, inverses.square().reciprocal().sub(epsilon), parts);
  if (kept_mean.defined()) move_towards(kept_mean, all_mean, momentum);
  if (kept_variance.defined()) {
    const at::Tensor total = parts.sum();
    move_towards(kept_variance, variance.mul(total).div(total.sub(1)), momentum);
  }
  const at::Tensor inverse = variance.add(epsilon).rsqrt();
  call.end();
  Two results{call.result(all_mean), call.result(inverse)};
  call.finish();
  return results;
}

Two gather_stats(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                 const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
                 double epsilon, int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, epsilon, counts);
}

at::Tensor normalized(const at::Tensor& in, const OptionalTensor& weight, const OptionalTensor& bias,
                      const at::Tensor& mean, const at::Tensor& invstd) {
  at::Tensor x = in.to(mean.scalar_type()).sub(beside(mean, in)).mul_(beside(invstd, in));
  if (const at::Tensor scale = given(weight); scale.defined()) x.mul_(beside(scale, in));
  if (const at::Tensor shift = given(bias); shift.defined()) x.add_(beside(shift, in));
  return x.to(in.scalar_type());
}

at::Tensor elementwise(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                       const at::Tensor& mean, const at::Tensor& invstd, double) {
  return computed("aten::batch_norm_elemt", normalized, input, weight, bias, mean, invstd);
}

at::Tensor& elementwise_out(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                            const at::Tensor& mean, const at::Tensor& invstd, double epsilon,
                            at::Tensor& out) {
  out.copy_(elementwise(input, weight, bias, mean, invstd, epsilon));
  return out;
}

Four backward_reduce(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                     const at::Tensor& invstd, const OptionalTensor& weight, bool for_input, bool for_weight,
                     bool for_bias) {
  return computed(
      "aten::batch_norm_backward_reduce",
      [&](const at::Tensor& out_gradient, const at::Tensor& in, const at::Tensor& means,
          const at::Tensor& inverses, const OptionalTensor& scale) -> Four {
        const at::ScalarType type = means.scalar_type();
        const at::Tensor g = out_gradient.to(type);
        const auto dims = within_a_channel(in);
        const at::Tensor sum = g.sum(dims);
        const at::Tensor with_input = in.to(type).sub(beside(means, in)).mul_(g).sum(dims);
        const at::Tensor weights = given(scale);
        const at::ScalarType of_weight = weights.defined() ? weights.scalar_type() : type;
        return {for_input ? sum : at::Tensor(), for_input ? with_input : at::Tensor(),
                for_weight ? with_input.mul(inverses).to(of_weight) : at::Tensor(),
                for_bias ? sum.to(of_weight, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
      },
      gradient, input, mean, invstd, weight);
}

at::Tensor backward_elementwise(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                                const at::Tensor& invstd, const OptionalTensor& weight,
                                const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu,
                                const at::Tensor& count) {
  return computed(
      "aten::batch_norm_backward_elemt",
      [](const at::Tensor& out_gradient, const at::Tensor& in, const at::Tensor& means,
         const at::Tensor& inverses, const OptionalTensor& scale, const at::Tensor& sum,
         const at::Tensor& with_input, const at::Tensor& counts) {
        const at::ScalarType type = means.scalar_type();
        const at::Tensor total = counts.sum().to(type);
        const at::Tensor slope = inverses.square().mul(with_input).div(total);
        const at::Tensor weights = given(scale);
        const at::Tensor factor = weights.defined() ? inverses.mul(weights.to(type)) : inverses;
        const at::Tensor centred = in.to(type).sub(beside(means, in));
        return out_gradient.to(type)
            .sub(beside(sum.div(total), in))
            .sub(centred.mul(beside(slope, in)))
            .mul_(beside(factor, in))
            .to(in.scalar_type());
      },
      gradient, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count);
}

}  // namespace

void register_synchronized_norm(OwnKernels& library) {
  library.impl("batch_norm_stats", &stats);
  library.impl("batch_norm_gather_stats", &gather_stats);
  library.impl("batch_norm_gather_stats_with_counts", &gather_stats_with_counts);
  library.impl("batch_norm_elemt", &elementwise);
  library.impl("batch_norm_elemt.out", &elementwise_out);
  library.impl("batch_norm_backward_reduce", &backward_reduce);
  library.impl("batch_norm_backward_elemt", &backward_elementwise);
}

}  // namespace spillway::kernels
