// The head, which is the product that gives the logits, and the loss: whole, or over chunks of the target
// tokens.
//
// In chunks, the logits of a chunk become the gradient of its loss in place, and that at once the chunk's
// part of the gradients of the hidden state and of the weight; the latter is summed in place. Neither forward
// nor backward holds the logits of all tokens. Computing a chunk again in the backward would cost a third of
// the head's work more and hold no less: the head's backward comes next after its forward. Logits and loss
// are in 32-bit floats, whatever the weights are; a 16-bit gradient of the weight is rounded after each
// chunk.
//
// Thread-safety: pure functions. Ownership: a Head shares its tensors. Errors: LibTorch's exceptions.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

struct Head {
  at::Tensor hidden;    // [sequences, target tokens, width]
  at::Tensor weight;    // [vocabulary, width]; of a stage before the last one not defined
  bool padded = false;  // targets below 0 are padding, which has no loss
  at::Tensor logits() const { return at::linear(hidden, weight); }
};

// The sum of the cross-entropies of `targets` [sequences, target tokens], padding left out; in chunks its
// backward runs once.
at::Tensor summed_loss(const Head& head, const at::Tensor& targets, uint32_t chunks);

// The same for each sequence, without autograd.
at::Tensor losses_by_row(const Head& head, const at::Tensor& targets, uint32_t chunks);

}  // namespace spillway::trainer
