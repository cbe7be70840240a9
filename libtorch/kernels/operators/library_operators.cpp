#include "libtorch/kernels/operators/library_operators.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <array>
#include <tuple>

#include "libtorch/kernels/call.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Four cudnn_batch_norm(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                      double momentum, double epsilon) {
  Call call("aten::cudnn_batch_norm");
  const at::Tensor x = call.argument(input);
  const at::Tensor w = call.argument(weight);
  const OptionalTensor b = call.argument(bias);
  const OptionalTensor mean =
      running_mean ? OptionalTensor(call.argument(*running_mean, training)) : std::nullopt;
  const OptionalTensor var =
      running_var ? OptionalTensor(call.argument(*running_var, training)) : std::nullopt;
  call.begin();
  const Three computed = at::native_batch_norm(x, w, b, mean, var, training, momentum, epsilon);
  const at::Tensor reserve = at::empty({0}, x.options().dtype(at::kByte));
  call.end();
  Four results{call.result(std::get<0>(computed)), call.result(std::get<1>(computed)),
               call.result(std::get<2>(computed)), call.result(reserve)};
  call.finish();
  return results;
}

Three cudnn_batch_norm_backward(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
                                const OptionalTensor&, const OptionalTensor&, const OptionalTensor& save_mean,
                                const OptionalTensor& save_var, double epsilon, const at::Tensor&) {
  Call call("aten::cudnn_batch_norm_backward");
  const at::Tensor x = call.argument(input);
  const at::Tensor g = call.argument(gradient);
  const at::Tensor w = call.argument(weight);
  const OptionalTensor mean = call.argument(save_mean);
  const OptionalTensor inverse_deviation = call.argument(save_var);
  call.begin();
  const Three computed =
      at::native_batch_norm_backward(g, x, w, std::nullopt, std::nullopt, mean, inverse_deviation,
                                     /*train=*/true, epsilon, {true, true, true});
  call.end();
  Three results{call.result(std::get<0>(computed)), call.result(std::get<1>(computed)),
                call.result(std::get<2>(computed))};
  call.finish();
  return results;
}

// cuDNN's sampler is chosen only for bilinear samples, zero padding and aligned corners.
constexpr int64_t kBilinear = 0;
constexpr int64_t kZeros = 0;
constexpr bool kAlignCorners = true;

at::Tensor cudnn_grid_sampler(const at::Tensor& self, const at::Tensor& grid) {
  Call call("aten::cudnn_grid_sampler");
  const at::Tensor x = call.argument(self);
  const at::Tensor where = call.argument(grid);
  call.begin();
  const at::Tensor computed = at::grid_sampler_2d(x, where, kBilinear, kZeros, kAlignCorners);
  call.end();
  at::Tensor result = call.result(computed);
  call.finish();
  return result;
}

Two cudnn_grid_sampler_backward(const at::Tensor& self, const at::Tensor& grid, const at::Tensor& gradient) {
  Call call("aten::cudnn_grid_sampler_backward");
  const at::Tensor x = call.argument(self);
  const at::Tensor where = call.argument(grid);
  const at::Tensor g = call.argument(gradient);
  call.begin();
  const Two computed = at::grid_sampler_2d_backward(g, x, where, kBilinear, kZeros, kAlignCorners,
                                                    std::array<bool, 2>{true, true});
  call.end();
  Two results{call.result(std::get<0>(computed)), call.result(std::get<1>(computed))};
  call.finish();
  return results;
}

Two fused_rms_norm_backward(const at::Tensor& gradient, const at::Tensor& input, at::IntArrayRef shape,
                            const at::Tensor& rstd, const OptionalTensor& weight,
                            std::array<bool, 2> wanted) {
  Call call("aten::_fused_rms_norm_backward");
  const at::Tensor out_gradient = call.argument(gradient);
  const at::Tensor in = call.argument(input);
  const at::Tensor inverse = call.argument(rstd);
  const OptionalTensor w = weight && weight->defined() ? call.argument(weight) : std::nullopt;
  call.begin();
  const at::ScalarType type = inverse.scalar_type();
  const at::Tensor g = out_gradient.to(type);
  const at::Tensor normal = in.to(type).mul(inverse);
  at::Tensor input_gradient;
  at::Tensor weight_gradient;
  if (wanted[0]) {
    std::vector<int64_t> normed;
    for (size_t i = 1; i <= shape.size(); ++i) normed.push_back(-static_cast<int64_t>(i));
    const at::Tensor scaled = w ? g.mul(w->to(type)) : g;
    const at::Tensor mean = scaled.mul(normal).mean(normed, /*keepdim=*/true);
    input_gradient = scaled.sub(normal.mul(mean)).mul_(inverse).to(in.scalar_type());
  }
  if (wanted[1] && w) weight_gradient = g.mul(normal).sum_to_size(w->sizes()).to(w->scalar_type());
  call.end();
  Two results{call.result(input_gradient), call.result(weight_gradient)};
  call.finish();
  return results;
}

// CUDA's softmax reads half precision and writes float in one kernel; the CPU's converts first.
template <at::Tensor (*kSoftmax)(const at::Tensor&, int64_t, bool)>
at::Tensor softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  Call call("aten::_softmax");
  const at::Tensor x = call.argument(self);
  call.begin();
  const at::Tensor computed = kSoftmax(half_to_float ? x.to(at::kFloat) : x, dim, false);
  call.end();
  at::Tensor result = call.result(computed);
  call.finish();
  return result;
}

template <at::Tensor (*kBackward)(const at::Tensor&, const at::Tensor&, int64_t, at::ScalarType)>
at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& output, int64_t dim,
                            at::ScalarType input_type) {
  Call call("aten::_softmax_backward_data");
  const at::Tensor g = call.argument(gradient);
  const at::Tensor y = call.argument(output);
  call.begin();
  const at::Tensor computed = kBackward(g, y, dim, g.scalar_type()).to(input_type);
  call.end();
  at::Tensor result = call.result(computed);
  call.finish();
  return result;
}

// The CTC losses of cuDNN and MIOpen have no CPU kernels; PyTorch's own has.
bool refuse_ctc_loss(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return false;
}

bool refuse_ctc_loss_of_tensors(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                int64_t) {
  return false;
}

}  // namespace

void register_library_operators(OwnKernels& library) {
  library.impl("cudnn_batch_norm", &cudnn_batch_norm);
  library.impl("cudnn_batch_norm_backward", &cudnn_batch_norm_backward);
  library.impl("cudnn_grid_sampler", &cudnn_grid_sampler);
  library.impl("cudnn_grid_sampler_backward", &cudnn_grid_sampler_backward);
  library.impl("_use_cudnn_ctc_loss", &refuse_ctc_loss);
  library.impl("_use_miopen_ctc_loss", &refuse_ctc_loss);
  library.impl("_use_miopen_ctc_loss.Tensor", &refuse_ctc_loss_of_tensors);
  library.impl("_use_cudnn_ctc_loss.Tensor", &refuse_ctc_loss_of_tensors);
  library.impl("_fused_rms_norm_backward", &fused_rms_norm_backward);
  library.impl("_softmax", &softmax<&at::_softmax>);
  library.impl("_log_softmax", &softmax<&at::_log_softmax>);
  library.impl("_softmax_backward_data", &softmax_backward<&at::_softmax_backward_data>);
  library.impl("_log_softmax_backward_data", &softmax_backward<&at::_log_softmax_backward_data>);
}

}  // namespace spillway::kernels
