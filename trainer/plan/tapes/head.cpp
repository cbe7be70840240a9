#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace {

using Tensor = Tape::Tensor;

// The product, then the logarithms of the softmax, which are kept, and the targets as a list.
Tensor whole(Tape* tape, const TapePass& pass, const TapeHead& head) {
  TapeOperators ops(tape, pass, pass.model.target_tokens());
  const Tensor narrow = ops.logits(head.hidden, head.words), logits = ops.in_floats(narrow);
  const Tensor shares = tape->run({.inputs = {logits},
                                   .output = tape->bytes(logits),
                                   .keeps_output = true,
                                   .keeps_more = pass.target_tokens() * TapePass::kTokenId});
  const Tensor loss = tape->run({.inputs = {shares}, .output = TapePass::kFloat});
  ops.drop({narrow, logits, shares});
  return loss;
}

// One operator: of the largest chunk the logits alone, and a few numbers a token. Each chunk reads the weight
// for its product, and in a training for that of the hidden state's gradient, and adds to the weight's.
Tensor chunked(Tape* tape, const TapePass& pass, const TapeHead& head) {
  const Architecture& model = pass.model;
  const uint64_t tokens = pass.target_tokens(),
                 chunk = (tokens + pass.plan.head_chunks - 1) / pass.plan.head_chunks;
  const uint64_t weight = uint64_t{model.vocabulary} * model.width * pass.number();
  // Floats, and beside them what they were made from, or what is made of them.
  const uint64_t logit = TapePass::kFloat + (pass.number() == TapePass::kFloat ? 0 : pass.number());
  const uint64_t padding = model.has_pairs() ? TapePass::kTokenId + 1 : 0;  // ids without it, and where it is
  Tape::Operator op{.inputs = {head.hidden},
                    .output = TapePass::kFloat,
                    .weights = model.tied_head ? 0 : weight,
                    .scratch = pass.workspace + tokens * TapePass::kTokenId +
                               chunk * (model.vocabulary * logit + 4 * TapePass::kFloat + padding),
                    .is_done = true,
                    .gradients_at_once = true};
  constexpr uint64_t kLaunches = 15;
  const uint64_t passes = model.has_pairs() ? 12 : 10;  // over the logits
  const uint64_t products = pass.training ? 3 : 1;
  for (uint64_t done = 0; done < tokens; done += chunk) {
    const uint64_t logits = std::min(chunk, tokens - done) * model.vocabulary;
    tape->spend(2.0 * double(products * logits) * model.width, (products + 1) * weight, double(products));
    tape->spend(0, passes * logits * TapePass::kFloat, kLaunches);
  }
  if (model.tied_head) op.inputs.push_back(head.words);
  return tape->run(op);
}

}  // namespace

Tape::Tensor loss_tape(Tape* tape, const TapePass& pass, const TapeHead& head) {
  tape->on(0, Kind::kLogits);
  const bool whole_logits = pass.training && pass.plan.head_chunks == 1;
  const Tensor loss = whole_logits ? whole(tape, pass, head) : chunked(tape, pass, head);
  tape->drop(head.hidden);
  return loss;
}

}  // namespace spillway::trainer
