#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace gpt2 {

using Tensor = Tape::Tensor;

Tensor attention_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  const uint64_t width = pass.model.width;
  const Tensor normed = ops.layer_norm(inputs[0]), all = ops.product(normed, width, 3 * width);
  ops.drop({normed});
  const Tensor mixed = ops.causal_attention(all), attended = ops.product(mixed, width, width);
  ops.drop({mixed, all});
  return attended;
}

Tensor mlp_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  return gated_or_plain_mlp(ops, pass.model, ops.layer_norm(inputs[0]));
}

Tensor embedded_tape(Tape* tape, const TapePass& pass, TapeOperators& ops, Tensor words) {
  const Tensor embedded = ops.embedding(words);
  const Tensor placed =
      tape->run({.inputs = {embedded},
                 .output = tape->bytes(embedded),
                 .weights = uint64_t{pass.model.positions()} * pass.model.width * pass.number(),
                 .passes_gradient = true});
  ops.drop({embedded});
  return ops.with_dropout(placed);
}

constexpr TapePart kLayerTape[] = {{Part::kAttention, attention_tape}, {Part::kMlp, mlp_tape}};

}  // namespace gpt2

TapeHead gpt2_tape(Tape* tape, const TapePass& pass) {
  using Tensor = Tape::Tensor;
  const Architecture& model = pass.model;
  tape->on(0, Kind::kInputs);
  TapeOperators ops(tape, pass, model.context);
  const Tensor words = ops.words();
  const Tensor first = pass.stage.is_first() ? gpt2::embedded_tape(tape, pass, ops, words) : ops.received();
  const Tensor x = run_layers(tape, pass, 0, model.layers, first, {}, gpt2::kLayerTape);
  if (!pass.stage.is_last()) return {x, words};
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.layer_norm(x);
  ops.drop({x});
  return {normed, words};
}

}  // namespace spillway::trainer
