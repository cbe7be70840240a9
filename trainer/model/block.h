// One layer of the GPT, plain and recomputed.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer::gpt {

struct BlockSettings {
  int64_t heads = 1;
  double dropout = 0;
  bool training = true;
};

// x: [sequences, tokens, width]; `parameters`: the twelve of one layer, on x's device.
at::Tensor block(const at::Tensor& x, at::TensorList parameters, const BlockSettings& settings);

// The same bits, but only x and the parameters are kept; the rest is computed again in the backward, from the
// random state that the forward had.
at::Tensor recomputed_block(const at::Tensor& x, at::TensorList parameters, const BlockSettings& settings);

}  // namespace spillway::trainer::gpt
