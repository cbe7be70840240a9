#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace {

using Tensor = Tape::Tensor;

// Takes over `normed`.
Tensor attended(TapeOperators& ops, const Architecture& model, Tensor normed) {
  const uint64_t width = model.width, queries = model.query_width(), keys = model.key_width();
  const Tensor query = ops.product(normed, width, queries), key = ops.product(normed, width, keys),
               value = ops.product(normed, width, keys);
  ops.drop({normed});
  const Tensor turned = ops.rotated(query), read = ops.for_groups(ops.rotated(key));
  ops.tape().hold(value);
  const Tensor given = ops.for_groups(value), mixed = ops.causal_attention(turned, read, given);
  ops.drop({turned, read, given});
  const Tensor out = ops.product(mixed, queries, width);
  ops.drop({mixed, query, key, value});
  return out;
}

}  // namespace

Tape::Tensor llama_tape(Tape* tape, const TapePass& pass) {
  const Architecture& model = pass.model;
  const auto layer = [pass](Tape* on, const std::vector<Tensor>& inputs) {
    TapeOperators ops(on, pass, pass.model.context);
    on->as(Kind::kAttention);
    const Tensor middle = ops.added(inputs[0], attended(ops, pass.model, ops.rms_norm(inputs[0])));
    on->as(Kind::kMlp);
    const Tensor out = ops.added(middle, gated_or_plain_mlp(ops, pass.model, ops.rms_norm(middle)));
    ops.drop({middle});
    return out;
  };
  TapeOperators ops(tape, pass, model.context);
  tape->on(0, Kind::kInputs);
  const Tensor words = ops.words();
  const Tensor turns = tape->plain(uint64_t{model.context} * model.head_width * TapeOperators::kFloat);
  const Tensor x = run_layers(tape, pass, 0, model.layers, ops.with_dropout(ops.embedding(words)), {}, layer);
  ops.drop({turns});
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.rms_norm(x);
  ops.drop({x});
  const Tensor logits = ops.logits(normed, words);
  ops.drop({normed});
  return logits;
}

}  // namespace spillway::trainer
