// The operators of the tapes: of each what trainer/model/operators has, with what LibTorch keeps for its
// backward.
//
// x is [rows, tokens, width]. An operator borrows its inputs; the caller drops them. Units: bytes.
#pragma once
#include "trainer/plan/tapes/tapes.h"

namespace spillway::trainer {

class TapeOperators {
 public:
  using Tensor = Tape::Tensor;
  TapeOperators(Tape* tape, const TapePass& pass, uint64_t tokens)
      : tape_(*tape),
        pass_(pass),
        model_(pass.model),
        rows_(pass.rows),
        tokens_(pass.rows * tokens),
        row_tokens_(tokens) {}
  // For as many tokens as x has.
  static TapeOperators at(Tape* tape, const TapePass& pass, Tensor x) {
    return {tape, pass, tape->bytes(x) / (uint64_t{pass.rows} * pass.model.width * pass.number())};
  }

  uint64_t tokens() const { return row_tokens_; }  // of a row
  // Of so many numbers a token.
  uint64_t numbers(uint64_t per_token) const { return tokens_ * per_token * pass_.number(); }
  Tape& tape() { return tape_; }
  // Each input is dropped: it was a temporary of the program.
  void drop(std::initializer_list<Tensor> tensors) {
    for (const Tensor tensor : tensors) tape_.drop(tensor);
  }

  // The embedding's weights, which a tied head uses too.
  Tensor words();
  Tensor embedding(Tensor words);
  // x of the stage before this one, which has it until the micro-batch is done.
  Tensor received();
  Tensor layer_norm(Tensor x);
  Tensor rms_norm(Tensor x);
  Tensor product(Tensor x, uint64_t width, uint64_t out);  // with a layer's matrix
  // The product with the words, if the head is tied, or with weights of its own.
  Tensor logits(Tensor x, Tensor words);
  Tensor activated(Tensor x);
  Tensor multiplied(Tensor a, Tensor b);
  Tensor scaled(Tensor x);  // by a number
  // In 32-bit floats, and back; x itself, where it is of them.
  Tensor in_floats(Tensor x);
  Tensor from_floats(Tensor wide);
  Tensor sum(Tensor a, Tensor b);
  // The residual with what a part of a layer adds to it. Takes over `part`.
  Tensor added(Tensor x, Tensor part);
  Tensor with_dropout(Tensor x);  // takes over x

  // Of queries, keys and values in one tensor.
  Tensor causal_attention(Tensor all);
  Tensor causal_attention(Tensor query, Tensor key, Tensor value);
  Tensor rotated(Tensor heads);
  Tensor for_groups(Tensor heads);  // takes over `heads`
  // `keys` tokens are read; `bias` may be none. Padding's is added in place.
  Tensor biased_attention(Tensor query, Tensor key, Tensor value, uint64_t keys, const Tensor* bias,
                          bool padded);

 private:
  Tape::Operator product_of(Tensor x, uint64_t width, uint64_t out, uint64_t scratch) const;
  double numbers_in(uint64_t bytes) const { return double(bytes) / double(pass_.number()); }
  uint64_t floats(uint64_t per_token) const { return tokens_ * per_token * TapePass::kFloat; }
  uint64_t log_sums() const;
  double causal_operations() const;
  void count_conversion(Tape::Operator* op) const;
  void count_sums_of_heads(Tape::Operator* op) const;
  Tensor in_rows(Tensor heads);  // a copy, because heads and tokens change places

  Tape& tape_;
  const TapePass& pass_;
  const Architecture& model_;
  const uint64_t rows_, tokens_, row_tokens_;
};

// The MLP behind its norm: a product, gated or not, and one back. Takes over `normed`.
Tape::Tensor gated_or_plain_mlp(TapeOperators& ops, const Architecture& model, Tape::Tensor normed);

}  // namespace spillway::trainer
