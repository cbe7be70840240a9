// The forward functions of the families, up to the head, on the device of the parameters that belong to no
// layer.
//
// `tokens` is [sequences, context] of a decoder's own input; of T5 the encoder's, and `targets` [sequences,
// target tokens] are shifted into the decoder's input. Both may be padded, where the model has pairs: no
// token sees the padding, and its logits mean nothing. Thread-safety, errors: as of forward.h.
#pragma once
#include "trainer/model/forward.h"
#include "trainer/model/head.h"

namespace spillway::trainer {

Passage<Head> gpt2_head(const Forward& forward, at::Tensor tokens);
Passage<Head> llama_head(const Forward& forward, at::Tensor tokens);
Passage<Head> t5_head(const Forward& forward, at::Tensor tokens, at::Tensor targets);

}  // namespace spillway::trainer
