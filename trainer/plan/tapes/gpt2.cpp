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

constexpr TapePart kLayerTape[] = {{Part::kAttention, attention_tape}, {Part::kMlp, mlp_tape}};

}  // namespace gpt2

TapeHead gpt2_tape(Tape* tape, const TapePass& pass) {
  using Tensor = Tape::Tensor;
  const Architecture& model = pass.model;
  tape->on(0, Kind::kInputs);
  TapeOperators ops(tape, pass, model.context);
  const Tensor words = ops.words(), embedded = ops.embedding(words);
  const Tensor placed = tape->run({.inputs = {embedded},
                                   .output = tape->bytes(embedded),
                                   .weights = uint64_t{model.context} * model.width * pass.number(),
                                   .passes_gradient = true});
  ops.drop({embedded});
  const Tensor x = run_layers(tape, pass, 0, model.layers, ops.with_dropout(placed), {}, gpt2::kLayerTape);
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.layer_norm(x);
  ops.drop({x});
  return {normed, words};
}

}  // namespace spillway::trainer
