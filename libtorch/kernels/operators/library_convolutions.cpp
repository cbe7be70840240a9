#include "libtorch/kernels/operators/library_convolutions.h"

#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/affine_grid_generator_backward.h>
#include <ATen/ops/convolution.h>

#include <array>
#include <vector>

#include "libtorch/kernels/computed.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Sizes = at::IntArrayRef;

struct Geometry {
  Sizes stride, padding, dilation;
  int64_t groups = 1;
};

at::Tensor plain_convolution(const at::Tensor& x, const at::Tensor& w, const OptionalTensor& b,
                             const Geometry& at) {
  const std::vector<int64_t> none(static_cast<size_t>(x.dim() - 2), 0);
  return at::convolution(x, w, b, at.stride, at.padding, at.dilation, /*transposed=*/false, none, at.groups);
}

at::Tensor convolution(const at::Tensor& self, const at::Tensor& weight, Sizes padding, Sizes stride,
                       Sizes dilation, int64_t groups, bool, bool, bool) {
  return computed(
      "aten::cudnn_convolution",
      [&](const at::Tensor& x, const at::Tensor& w) {
        return plain_convolution(x, w, std::nullopt, {stride, padding, dilation, groups});
      },
      self, weight);
}

at::Tensor& convolution_out(const at::Tensor& self, const at::Tensor& weight, Sizes padding, Sizes stride,
                            Sizes dilation, int64_t groups, bool benchmark, bool deterministic, bool tf32,
                            at::Tensor& out) {
  out.copy_(convolution(self, weight, padding, stride, dilation, groups, benchmark, deterministic, tf32));
  return out;
}

at::Tensor transposed_convolution(const at::Tensor& self, const at::Tensor& weight, Sizes padding,
                                  Sizes output_padding, Sizes stride, Sizes dilation, int64_t groups, bool,
                                  bool, bool) {
  return computed(
      "aten::cudnn_convolution_transpose",
      [&](const at::Tensor& x, const at::Tensor& w) {
        return at::convolution(x, w, std::nullopt, stride, padding, dilation, /*transposed=*/true,
                               output_padding, groups);
      },
      self, weight);
}

at::Tensor convolution_relu(const at::Tensor& self, const at::Tensor& weight, const OptionalTensor& bias,
                            Sizes stride, Sizes padding, Sizes dilation, int64_t groups) {
  return computed(
      "aten::cudnn_convolution_relu",
      [&](const at::Tensor& x, const at::Tensor& w, const OptionalTensor& b) {
        return plain_convolution(x, w, b, {stride, padding, dilation, groups}).relu_();
      },
      self, weight, bias);
}

at::Tensor convolution_add_relu(const at::Tensor& self, const at::Tensor& weight, const at::Tensor& added,
                                const std::optional<at::Scalar>& alpha, const OptionalTensor& bias,
                                Sizes stride, Sizes padding, Sizes dilation, int64_t groups) {
  return computed(
      "aten::cudnn_convolution_add_relu",
      [&](const at::Tensor& x, const at::Tensor& w, const at::Tensor& z, const OptionalTensor& b) {
        return plain_convolution(x, w, b, {stride, padding, dilation, groups})
            .add_(z, alpha.value_or(1))
            .relu_();
      },
      self, weight, added, bias);
}

at::Tensor depthwise(const char* name, const at::Tensor& self, const at::Tensor& weight,
                     const OptionalTensor& bias, Sizes stride, Sizes padding, Sizes dilation) {
  return computed(
      name,
      [&](const at::Tensor& x, const at::Tensor& w, const OptionalTensor& b) {
        return plain_convolution(x, w, b, {stride, padding, dilation, /*groups=*/x.size(1)});
      },
      self, weight, bias);
}

at::Tensor depthwise_2d(const at::Tensor& self, const at::Tensor& weight, Sizes, const OptionalTensor& bias,
                        Sizes stride, Sizes padding, Sizes dilation) {
  return depthwise("aten::_conv_depthwise2d", self, weight, bias, stride, padding, dilation);
}

at::Tensor depthwise_3d(const at::Tensor& self, const at::Tensor& weight, Sizes, const OptionalTensor& bias,
                        Sizes stride, Sizes padding, Sizes dilation) {
  return depthwise("aten::conv_depthwise3d", self, weight, bias, stride, padding, dilation);
}

// cuDNN's grids have aligned corners.
at::Tensor affine_grid(const at::Tensor& theta, int64_t n, int64_t c, int64_t h, int64_t w) {
  return computed(
      "aten::cudnn_affine_grid_generator",
      [&](const at::Tensor& t) {
        return at::affine_grid_generator(t, std::array<int64_t, 4>{n, c, h, w}, /*align_corners=*/true);
      },
      theta);
}

at::Tensor affine_grid_backward(const at::Tensor& gradient, int64_t n, int64_t c, int64_t h, int64_t w) {
  return computed(
      "aten::cudnn_affine_grid_generator_backward",
      [&](const at::Tensor& g) {
        return at::affine_grid_generator_backward(g, std::array<int64_t, 4>{n, c, h, w},
                                                  /*align_corners=*/true);
      },
      gradient);
}

}  // namespace

void register_library_convolutions(OwnKernels& library) {
  library.impl("cudnn_convolution", &convolution);
  library.impl("cudnn_convolution.out", &convolution_out);
  library.impl("cudnn_convolution_transpose", &transposed_convolution);
  library.impl("cudnn_convolution_relu", &convolution_relu);
  library.impl("cudnn_convolution_add_relu", &convolution_add_relu);
  library.impl("_conv_depthwise2d", &depthwise_2d);
  library.impl("conv_depthwise3d", &depthwise_3d);
  library.impl("cudnn_affine_grid_generator", &affine_grid);
  library.impl("cudnn_affine_grid_generator_backward", &affine_grid_backward);
}

}  // namespace spillway::kernels
