#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace llama {

using Tensor = Tape::Tensor;

Tensor attention_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  const Architecture& model = pass.model;
  const Tensor normed = ops.rms_norm(inputs[0]);
  const uint64_t width = model.width, queries = model.query_width(), keys = model.key_width();
  const Tensor query = ops.product(normed, width, queries), key = ops.product(normed, width, keys),
               value = ops.product(normed, width, keys);
  ops.drop({normed});
  const Tensor turned = ops.rotated(query), read = ops.for_groups(ops.rotated(key));
  tape->hold(value);
  const Tensor given = ops.for_groups(value), mixed = ops.causal_attention(turned, read, given);
  ops.drop({turned, read, given});
  const Tensor out = ops.product(mixed, queries, width);
  ops.drop({mixed, query, key, value});
  return out;
}

Tensor mlp_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  return gated_or_plain_mlp(ops, pass.model, ops.rms_norm(inputs[0]));
}

constexpr TapePart kLayerTape[] = {{Part::kAttention, attention_tape}, {Part::kMlp, mlp_tape}};

}  // namespace llama

TapeHead llama_tape(Tape* tape, const TapePass& pass) {
  const Architecture& model = pass.model;
  using Tensor = Tape::Tensor;
  TapeOperators ops(tape, pass, model.context);
  tape->on(0, Kind::kInputs);
  const Tensor words = ops.words();
  const Tensor turns = tape->plain(uint64_t{model.context} * model.head_width * TapePass::kFloat);
  const Tensor first = pass.stage.is_first() ? ops.with_dropout(ops.embedding(words)) : ops.received();
  const Tensor x = run_layers(tape, pass, 0, model.layers, first, {}, llama::kLayerTape);
  ops.drop({turns});
  if (!pass.stage.is_last()) return {x, words};
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.rms_norm(x);
  ops.drop({x});
  return {normed, words};
}

}  // namespace spillway::trainer
