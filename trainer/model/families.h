// The forward functions of the families, up to the logits: [sequences, target tokens, vocabulary], on the
// device of the parameters that belong to no layer.
//
// `tokens` is [sequences, context] of a decoder's own input; of T5 the encoder's, and `targets` [sequences,
// target tokens] are shifted into the decoder's input. Thread-safety, errors: as of forward.h.
#pragma once
#include "trainer/model/forward.h"

namespace spillway::trainer {

at::Tensor gpt2_logits(const Forward& forward, const at::Tensor& tokens);
at::Tensor llama_logits(const Forward& forward, const at::Tensor& tokens);
at::Tensor t5_logits(const Forward& forward, const at::Tensor& tokens, const at::Tensor& targets);

}  // namespace spillway::trainer
