// Attention on CPU tensors: forward and backward, with all that the CUDA entries allow.
//
// Thread-safety: free functions. Errors: c10::Error. Tensors are [batch, heads, length, head size]; keys and
// values may have fewer heads (grouped-query attention).
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "libtorch/kernels/operators/random.h"

namespace spillway::kernels {

struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;  // added to the scores
  bool learned_bias = false;       // it requires a gradient
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;  // default: 1 / sqrt(head size)
  DrawKey draw{};               // of the dropout mask
};

struct AttentionOutput {
  at::Tensor output, logsumexp;
};

struct AttentionGradients {
  at::Tensor query, key, value, bias;
};

AttentionOutput attend(const Attention& attention);

// `bias_gradient`: the bias's gradient is wanted too.
AttentionGradients attend_backward(const Attention& attention, const at::Tensor& gradient,
                                   const AttentionOutput& forward, bool bias_gradient);

}  // namespace spillway::kernels
