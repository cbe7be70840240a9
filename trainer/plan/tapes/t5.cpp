#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace {

using Tensor = Tape::Tensor;

// Queries from `normed`, keys and values from `read`, which has `keys` tokens a row. Takes over `normed`.
Tensor attended(TapeOperators& ops, const Architecture& model, Tensor normed, Tensor read, uint64_t keys,
                const Tensor* bias) {
  const uint64_t width = model.width, queries = model.query_width();
  const Tensor query = ops.product(normed, width, queries), key = ops.product(read, width, queries),
               value = ops.product(read, width, queries);
  ops.drop({normed});
  const Tensor mixed = ops.biased_attention(query, key, value, keys, bias);
  ops.drop({query, key, value});
  const Tensor out = ops.product(mixed, queries, width);
  ops.drop({mixed});
  return out;
}

// inputs: x, the bias, and in the decoder the encoder's output.
Tensor layer(const TapePass& pass, Tape* tape, const std::vector<Tensor>& inputs) {
  const Architecture& model = pass.model;
  const bool decodes = inputs.size() > 2;
  const uint64_t tokens = decodes ? model.target_tokens() : model.context;
  TapeOperators ops(tape, pass, tokens);
  tape->as(Kind::kAttention);
  Tensor normed = ops.rms_norm(inputs[0]);
  Tensor x = ops.added(inputs[0], attended(ops, model, normed, normed, tokens, &inputs[1]));
  if (decodes) {
    normed = ops.rms_norm(x);
    const Tensor after = ops.added(x, attended(ops, model, normed, inputs[2], model.context, nullptr));
    ops.drop({x});
    x = after;
  }
  tape->as(Kind::kMlp);
  const Tensor out = ops.added(x, gated_or_plain_mlp(ops, model, ops.rms_norm(x)));
  ops.drop({x});
  return out;
}

// [1, heads, tokens, tokens] of all layers of a stack; the decoder's is masked in a second tensor.
Tensor position_bias(Tape* tape, const Architecture& model, uint64_t tokens, bool masked) {
  const uint64_t pairs = tokens * tokens, bytes = pairs * model.heads * TapeOperators::kFloat;
  // Buckets are 64-bit integers, and are kept.
  Tensor bias = tape->run({.output = bytes, .keeps_more = 8 * pairs, .scratch = 32 * pairs});
  if (masked) {
    const Tensor whole = tape->run({.inputs = {bias}, .output = bytes, .keeps_more = pairs});
    tape->drop(bias);
    bias = whole;
  }
  tape->share(bias);
  return bias;
}

// From the embedding to the last norm's output.
Tensor stack(Tape* tape, const TapePass& pass, uint64_t tokens, Tensor words, const Tensor* encoded) {
  const Architecture& model = pass.model;
  TapeOperators ops(tape, pass, tokens);
  tape->on(0, Kind::kInputs);
  std::vector<Tensor> reads{position_bias(tape, model, tokens, encoded != nullptr)};
  if (encoded != nullptr) reads.push_back(*encoded);
  const Tensor embedded = ops.with_dropout(ops.embedding(words));
  const auto run = [pass](Tape* on, const std::vector<Tensor>& inputs) { return layer(pass, on, inputs); };
  const Tensor x = run_layers(tape, pass, encoded ? model.layers : 0,
                              encoded ? model.decoder_layers : model.layers, embedded, reads, run);
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.rms_norm(x);
  ops.drop({x, reads[0]});
  return ops.with_dropout(normed);
}

}  // namespace

Tape::Tensor t5_tape(Tape* tape, const TapePass& pass) {
  const Architecture& model = pass.model;
  TapeOperators ops(tape, pass, model.target_tokens());
  tape->on(0, Kind::kInputs);
  const Tensor words = ops.words(), encoded = stack(tape, pass, model.context, words, nullptr);
  tape->share(encoded);
  const Tensor decoded = stack(tape, pass, model.target_tokens(), words, &encoded);
  const Tensor head = model.tied_head ? ops.scaled(decoded) : decoded;
  const Tensor logits = ops.logits(head, words);
  if (model.tied_head) ops.drop({head});
  ops.drop({decoded, encoded});
  return logits;
}

}  // namespace spillway::trainer
