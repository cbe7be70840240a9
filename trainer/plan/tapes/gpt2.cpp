#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {

Tape::Tensor gpt2_tape(Tape* tape, const TapePass& pass) {
  using Tensor = Tape::Tensor;
  const Architecture& model = pass.model;
  const uint64_t width = model.width;
  const auto layer = [pass, width](Tape* on, const std::vector<Tensor>& inputs) {
    const Architecture& of = pass.model;
    TapeOperators ops(on, pass, of.context);
    on->as(Kind::kAttention);
    const Tensor normed = ops.layer_norm(inputs[0]), all = ops.product(normed, width, 3 * width);
    ops.drop({normed});
    const Tensor mixed = ops.causal_attention(all), attended = ops.product(mixed, width, width);
    ops.drop({mixed, all});
    const Tensor middle = ops.added(inputs[0], attended);
    on->as(Kind::kMlp);
    const Tensor out = ops.added(middle, gated_or_plain_mlp(ops, of, ops.layer_norm(middle)));
    ops.drop({middle});
    return out;
  };
  TapeOperators ops(tape, pass, model.context);
  tape->on(0, Kind::kInputs);
  const Tensor words = ops.words(), embedded = ops.embedding(words);
  const Tensor placed = tape->run({.inputs = {embedded},
                                   .output = tape->bytes(embedded),
                                   .weights = uint64_t{model.context} * width * TapeOperators::kFloat,
                                   .passes_gradient = true});
  ops.drop({embedded});
  const Tensor x = run_layers(tape, pass, 0, model.layers, ops.with_dropout(placed), {}, layer);
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.layer_norm(x);
  ops.drop({x});
  const Tensor logits = ops.logits(normed, words);
  ops.drop({normed});
  return logits;
}

}  // namespace spillway::trainer
