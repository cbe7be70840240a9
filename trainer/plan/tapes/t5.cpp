#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace {

using Tensor = Tape::Tensor;

// Queries from `normed`, keys and values from `read`, which has `keys` tokens a row and may be padded. Takes
// over `normed`.
Tensor attended(TapeOperators& ops, const Architecture& model, Tensor normed, Tensor read, uint64_t keys,
                const Tensor* bias, bool padded) {
  const uint64_t width = model.width, queries = model.query_width();
  const Tensor query = ops.product(normed, width, queries), key = ops.product(read, width, queries),
               value = ops.product(read, width, queries);
  ops.drop({normed});
  const Tensor mixed = ops.biased_attention(query, key, value, keys, bias, padded);
  ops.drop({query, key, value});
  const Tensor out = ops.product(mixed, queries, width);
  ops.drop({mixed});
  return out;
}

// inputs: x, the bias; in an encoder of padded sources also their padding's.
Tensor self_attention_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  const Tensor normed = ops.rms_norm(inputs[0]);
  return attended(ops, pass.model, normed, normed, ops.tokens(), &inputs[1], inputs.size() > 2);
}

// inputs: x, the encoder's output; of padded sources also their padding's bias.
Tensor cross_attention_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  return attended(ops, pass.model, ops.rms_norm(inputs[0]), inputs[1], pass.model.context, nullptr,
                  inputs.size() > 2);
}

Tensor t5_mlp_tape(Tape* tape, const TapePass& pass, const std::vector<Tensor>& inputs) {
  TapeOperators ops = TapeOperators::at(tape, pass, inputs[0]);
  return gated_or_plain_mlp(ops, pass.model, ops.rms_norm(inputs[0]));
}

constexpr TapePart kEncoderTape[] = {{Part::kAttention, self_attention_tape, 1}, {Part::kMlp, t5_mlp_tape}};
constexpr TapePart kDecoderTape[] = {{Part::kAttention, self_attention_tape, 1},
                                     {Part::kCrossAttention, cross_attention_tape, 1},
                                     {Part::kMlp, t5_mlp_tape}};
// Of pairs.
constexpr TapePart kPaddedEncoderTape[] = {{Part::kAttention, self_attention_tape, 2},
                                           {Part::kMlp, t5_mlp_tape}};
constexpr TapePart kPaddedDecoderTape[] = {{Part::kAttention, self_attention_tape, 1},
                                           {Part::kCrossAttention, cross_attention_tape, 2},
                                           {Part::kMlp, t5_mlp_tape}};

TapeParts parts_of(bool decoder, bool padded) {
  if (padded) return decoder ? TapeParts(kPaddedDecoderTape) : TapeParts(kPaddedEncoderTape);
  return decoder ? TapeParts(kDecoderTape) : TapeParts(kEncoderTape);
}

// [1, heads, tokens, tokens] of all layers of a stack; the decoder's is masked in a second tensor.
Tensor position_bias(Tape* tape, const TapePass& pass, uint64_t tokens, bool masked) {
  const uint64_t pairs = tokens * tokens, bytes = pairs * pass.model.heads * pass.number();
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

// From the embedding to the last norm's output. `padding`: the bias of the sources', or none.
Tensor stack(Tape* tape, const TapePass& pass, uint64_t tokens, Tensor words, const Tensor* encoded,
             const Tensor* padding) {
  const Architecture& model = pass.model;
  TapeOperators ops(tape, pass, tokens);
  tape->on(0, Kind::kInputs);
  std::vector<Tensor> reads{position_bias(tape, pass, tokens, encoded != nullptr)};
  if (encoded != nullptr) reads.push_back(*encoded);
  if (padding != nullptr) reads.push_back(*padding);
  const Tensor embedded = ops.with_dropout(ops.embedding(words));
  const TapeParts parts = parts_of(encoded != nullptr, padding != nullptr);
  const Tensor x = run_layers(tape, pass, encoded ? model.layers : 0,
                              encoded ? model.decoder_layers : model.layers, embedded, reads, parts);
  tape->on(0, Kind::kLogits);
  const Tensor normed = ops.rms_norm(x);
  ops.drop({x, reads[0]});
  return ops.with_dropout(normed);
}

}  // namespace

TapeHead t5_tape(Tape* tape, const TapePass& pass) {
  const Architecture& model = pass.model;
  TapeOperators ops(tape, pass, model.target_tokens());
  tape->on(0, Kind::kInputs);
  const bool padded = model.has_pairs();
  // Beside the bias of the padding, the ids that have a pad in its place.
  const Tensor bias = tape->plain(padded ? uint64_t{pass.rows} * model.context * pass.number() : 0);
  tape->plain(padded ? uint64_t{pass.rows} * model.row_tokens() * TapePass::kTokenId : 0);
  const Tensor* padding = padded ? &bias : nullptr;
  const Tensor words = ops.words(), encoded = stack(tape, pass, model.context, words, nullptr, padding);
  tape->share(encoded);
  const Tensor decoded = stack(tape, pass, model.target_tokens(), words, &encoded, padding);
  ops.drop({encoded, bias});
  if (!model.tied_head) return {decoded, words};
  const Tensor scaled = ops.scaled(decoded);
  ops.drop({decoded});
  return {scaled, words};
}

}  // namespace spillway::trainer
