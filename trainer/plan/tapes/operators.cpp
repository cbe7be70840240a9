#include "trainer/plan/tapes/operators.h"

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {

using Tensor = Tape::Tensor;

Tensor TapeOperators::words() {
  const Tensor words = tape_.weights(uint64_t{model_.vocabulary} * model_.width * pass_.number());
  // Autograd adds to a head's gradient in place, unless it is a product's, which is a view.
  if (model_.has_decoder() || pass_.plan.head_chunks == 1) tape_.share(words);
  return words;
}

Tensor TapeOperators::received() {
  const Tensor x = tape_.run({.output = numbers(model_.width), .is_done = true});
  tape_.hold(x);
  return x;
}

Tensor TapeOperators::embedding(Tensor words) {
  return tape_.run({.inputs = {words}, .output = numbers(model_.width), .gathers = true});
}

Tensor TapeOperators::layer_norm(Tensor x) {
  return tape_.run(
      {.inputs = {x}, .output = tape_.bytes(x), .keeps = {x}, .keeps_more = floats(2), .vectors = 2});
}

Tensor TapeOperators::in_floats(Tensor x) {
  if (pass_.number() == TapePass::kFloat) return tape_.hold(x), x;
  return tape_.run({.inputs = {x}, .output = tape_.bytes(x) / pass_.number() * TapePass::kFloat});
}

Tensor TapeOperators::from_floats(Tensor wide) {
  if (pass_.number() == TapePass::kFloat) return tape_.hold(wide), wide;
  return tape_.run({.inputs = {wide}, .output = tape_.bytes(wide) / TapePass::kFloat * pass_.number()});
}

Tensor TapeOperators::rms_norm(Tensor x) {
  const Tensor wide = in_floats(x);
  const uint64_t bytes = tape_.bytes(wide);
  // The square and its mean; in the backward the spread gradient of the mean, and 2x.
  const Tensor scale = tape_.run({.inputs = {wide},
                                  .output = floats(1),
                                  .keeps = {wide},
                                  .scratch = bytes,
                                  .backward_scratch = 2 * bytes});
  // A factor that is smaller than the other gets a gradient of the full size first.
  const Tensor scaled = tape_.run({.inputs = {wide, scale},
                                   .output = bytes,
                                   .keeps = {wide, scale},
                                   .backward_scratch = bytes,
                                   .backward_moves = bytes,
                                   .backward_kernels = 1});
  drop({wide, scale});
  const Tensor normed = from_floats(scaled);
  drop({scaled});
  const Tensor weighted = tape_.run({.inputs = {normed},
                                     .output = tape_.bytes(normed),
                                     .keeps = {normed},
                                     .vectors = 1,
                                     .sums_gradient = true,
                                     .backward_scratch = tape_.bytes(normed)});
  drop({normed});
  return weighted;
}

// In 8 bits it has numbers for as long as the forward takes. In the backward they are gone before its
// gradient is there, which is as large.
Tensor TapeOperators::product(Tensor x, uint64_t width, uint64_t out) {
  const bool in_8_bits = pass_.precision == Precision::kInt8;
  Tape::Operator op =
      product_of(x, width, out, pass_.workspace + (in_8_bits ? width * out * pass_.number() : 0));
  op.sums_gradient = model_.has_biases();
  op.vectors = op.sums_gradient ? 1 : 0;
  if (in_8_bits) count_conversion(&op);
  if (pass_.tiles > 1) {
    const uint64_t rows = model_.stores_in_out() ? width : out, columns = width + out - rows;
    const auto tile = static_cast<uint64_t>(tile_lines(static_cast<int64_t>(rows), pass_.tiles));
    op.fresh = tile * columns * pass_.number();
    op.tiles = static_cast<uint32_t>((rows + tile - 1) / tile);
  }
  return tape_.run(op);
}

// Codes become numbers, and are scaled, for the forward and for the backward. A bias is added apart.
void TapeOperators::count_conversion(Tape::Operator* op) const {
  const uint64_t elements = op->weights / pass_.number(), moved = elements + 3 * op->weights;
  tape_.spend(0, moved, 2);
  if (op->sums_gradient) tape_.spend(0, 2 * op->output, 1);
  op->backward_moves += moved, op->backward_kernels += 2;
}

Tape::Operator TapeOperators::product_of(Tensor x, uint64_t width, uint64_t out, uint64_t scratch) const {
  return {.inputs = {x},
          .output = tape_.bytes(x) / width * out,
          .keeps = {x},
          .weights = width * out * pass_.number(),
          .scratch = scratch,
          .backward_scratch = pass_.workspace,
          .operations = 2.0 * numbers_in(tape_.bytes(x)) * double(out)};
}

Tensor TapeOperators::logits(Tensor x, Tensor words) {
  if (!model_.tied_head) return tape_.run(product_of(x, model_.width, model_.vocabulary, pass_.workspace));
  return tape_.run({.inputs = {x, words},
                    .output = numbers(model_.vocabulary),
                    .keeps = {x},
                    .scratch = pass_.workspace,
                    .backward_scratch = pass_.workspace,
                    .operations = 2.0 * numbers_in(tape_.bytes(x)) * model_.vocabulary});
}

Tensor TapeOperators::activated(Tensor x) {
  if (model_.activation == Activation::kRelu)
    return tape_.run({.inputs = {x}, .output = tape_.bytes(x), .keeps_output = true});
  return tape_.run({.inputs = {x}, .output = tape_.bytes(x), .keeps = {x}});
}

Tensor TapeOperators::multiplied(Tensor a, Tensor b) {
  return tape_.run({.inputs = {a, b}, .output = tape_.bytes(a), .keeps = {a, b}});
}

Tensor TapeOperators::scaled(Tensor x) {
  return tape_.run({.inputs = {x}, .output = tape_.bytes(x)});
}

Tensor TapeOperators::sum(Tensor a, Tensor b) {
  return tape_.run({.inputs = {a, b}, .output = tape_.bytes(a), .passes_gradient = true});
}

Tensor TapeOperators::with_dropout(Tensor x) {
  if (!pass_.drops()) return x;
  // A mask of one byte a number.
  const Tensor dropped =
      tape_.run({.inputs = {x}, .output = tape_.bytes(x), .keeps_more = tape_.bytes(x) / pass_.number()});
  tape_.drop(x);
  return dropped;
}

Tensor TapeOperators::added(Tensor x, Tensor part) {
  const Tensor dropped = with_dropout(part), result = sum(x, dropped);
  tape_.drop(dropped);
  return result;
}

// The logarithms of the softmaxes' sums, one a head and query; LibTorch pads the queries to 32.
uint64_t TapeOperators::log_sums() const {
  return rows_ * model_.heads * ((row_tokens_ + 31) / 32 * 32) * TapePass::kFloat;
}

// Two products of queries with as many keys, of which a causal kernel leaves half out.
double TapeOperators::causal_operations() const {
  return 2.0 * double(tokens_) * double(row_tokens_) * model_.query_width();
}

// Before the backward of a memory-efficient attention the output is multiplied by its gradient, and the
// products of each head are added up. Flash attention has that in its kernel.
void TapeOperators::count_sums_of_heads(Tape::Operator* op) const {
  if (pass_.number() != TapePass::kFloat) return;
  op->backward_moves += 4 * op->output, op->backward_kernels += 2;
}

Tensor TapeOperators::causal_attention(Tensor all) {
  Tape::Operator op{.inputs = {all},
                    .output = tape_.bytes(all) / 3,
                    .keeps = {all},
                    .keeps_output = true,
                    .keeps_more = log_sums(),
                    .backward_scratch = tape_.bytes(all),  // three gradients, before they are one
                    .backward_moves = 2 * tape_.bytes(all),
                    .backward_kernels = 1,
                    .operations = causal_operations()};
  count_sums_of_heads(&op);
  return tape_.run(op);
}

Tensor TapeOperators::causal_attention(Tensor query, Tensor key, Tensor value) {
  Tape::Operator op{.inputs = {query, key, value},
                    .output = tape_.bytes(query),
                    .keeps = {query, key, value},
                    .keeps_output = true,
                    .keeps_more = log_sums(),
                    .operations = causal_operations()};
  count_sums_of_heads(&op);
  const Tensor mixed = tape_.run(op);
  // Flash attention, which LibTorch takes for numbers of 16 bits, leaves heads before tokens, as the queries
  // have them; other kernels leave tokens first.
  if (pass_.number() == TapePass::kFloat) return mixed;
  const Tensor result = in_rows(mixed);
  tape_.drop(mixed);
  return result;
}

Tensor TapeOperators::rotated(Tensor heads) {
  const uint64_t bytes = tape_.bytes(heads), wide = bytes / pass_.number() * TapePass::kFloat;
  // Four products and two sums of halves, in floats; where the result is not of them, also what it is made
  // of.
  const uint64_t converted = wide == bytes ? 0 : wide;
  const uint64_t scratch = converted ? 4 * wide - bytes : 3 * wide, backward_scratch = 2 * wide + converted;
  // Each way: the products read and write four times as much, the sums three times, the way into one tensor
  // twice. Of the backward the sums' gradients are one more, and copies to floats and back stand at its ends.
  const uint64_t copies = converted ? 2 * (wide + bytes) : 0;
  tape_.spend(0, 9 * wide + copies - 2 * bytes - 2 * scratch, 0);
  return tape_.run({.inputs = {heads},
                    .output = bytes,
                    .scratch = scratch,
                    .backward_scratch = backward_scratch,
                    .backward_moves = 10 * wide + copies - 2 * bytes - 2 * backward_scratch,
                    .backward_kernels = 8});
}

Tensor TapeOperators::for_groups(Tensor heads) {
  // One head is read by all without a copy.
  if (model_.key_value_heads == model_.heads || model_.key_value_heads == 1) return heads;
  const uint64_t groups = model_.heads / model_.key_value_heads;
  const Tensor repeated = tape_.run({.inputs = {heads}, .output = groups * tape_.bytes(heads)});
  tape_.drop(heads);
  return repeated;
}

Tensor TapeOperators::in_rows(Tensor heads) {
  return tape_.run({.inputs = {heads}, .output = tape_.bytes(heads), .passes_gradient = true});
}

Tensor TapeOperators::biased_attention(Tensor query, Tensor key, Tensor value, uint64_t keys,
                                       const Tensor* bias, bool padded) {
  const uint64_t scores = rows_ * model_.heads * row_tokens_ * keys * pass_.number();
  const double operations = 2.0 * numbers_in(scores) * model_.head_width;
  const bool copies = rows_ > 1;
  const auto in_batch = [&](Tensor heads) {
    if (copies) return in_rows(heads);
    tape_.hold(heads);
    return heads;
  };
  const Tensor queries = in_batch(query), reads = in_batch(key);
  Tensor raw = tape_.run({.inputs = {queries, reads},
                          .output = scores,
                          .keeps = {queries, reads},
                          .scratch = pass_.workspace,
                          .backward_scratch = pass_.workspace,
                          .operations = operations});
  drop({queries, reads});
  if (bias != nullptr) {
    const Tensor biased = tape_.run({.inputs = {raw, *bias}, .output = scores, .passes_gradient = true});
    tape_.drop(raw);
    raw = biased;
  }
  if (padded) tape_.spend(0, 2 * scores, 1);
  // LibTorch's softmax of float16 reads it as it is.
  const Tensor read = pass_.precision == Precision::kFp16Mixed ? (tape_.hold(raw), raw) : in_floats(raw);
  const Tensor wide = tape_.run(
      {.inputs = {read}, .output = scores / pass_.number() * TapePass::kFloat, .keeps_output = true});
  const Tensor shares = from_floats(wide);
  drop({read, wide});
  const Tensor values = in_batch(value);
  const Tensor mixed = tape_.run({.inputs = {shares, values},
                                  .output = tape_.bytes(query),
                                  .keeps = {shares, values},
                                  .scratch = pass_.workspace,
                                  .backward_scratch = pass_.workspace,
                                  .operations = operations});
  drop({raw, shares, values});
  const Tensor result = in_rows(mixed);
  tape_.drop(mixed);
  return result;
}

Tensor gated_or_plain_mlp(TapeOperators& ops, const Architecture& model, Tensor normed) {
  const Tensor first = ops.product(normed, model.width, model.hidden);
  Tensor hidden = ops.activated(first);
  ops.drop({first});
  if (model.gated) {
    const Tensor second = ops.product(normed, model.width, model.hidden), gate = hidden;
    hidden = ops.multiplied(gate, second);
    ops.drop({gate, second});
  }
  const Tensor out = ops.product(hidden, model.hidden, model.width);
  ops.drop({hidden, normed});
  return out;
}

}  // namespace spillway::trainer
