#include "trainer/plan/tapes/dry_runs.h"

namespace spillway::trainer {
namespace {

TapeHead head_on(Tape* tape, const TapePass& pass) {
  switch (pass.model.family) {
    case Family::kGpt2:
      return gpt2_tape(tape, pass);
    case Family::kLlama:
      return llama_tape(tape, pass);
    case Family::kT5:
      return t5_tape(tape, pass);
  }
  return {};
}

Memory dry_run(const TapePass& pass, const Machine& machine) {
  Memory memory(machine);
  Tape tape(&memory, pass.training ? Tape::Mode::kTrains : Tape::Mode::kEvaluates);
  tape.on(0, Kind::kInputs);
  const Architecture& model = pass.model;
  tape.plain(uint64_t{pass.rows} * model.row_tokens() * TapePass::kTokenId);
  const TapeHead head = head_on(&tape, pass);
  const Tape::Tensor loss = pass.stage.is_last() ? loss_tape(&tape, pass, head) : head.hidden;
  memory.end_forward();
  if (pass.training) tape.backward(loss);
  memory.end_piece();
  return memory;
}

// The text of all that a run depends on.
std::string key_of(const TapePass& pass) {
  Plan relevant{.micro_batch = pass.rows};
  relevant.placement = pass.plan.placement;
  relevant.head_chunks = pass.plan.head_chunks;
  if (!pass.training) return "evaluation " + to_string(relevant);
  relevant.pipeline = pass.in_pieces ? 2 : 1;
  relevant.recompute = pass.plan.recompute;
  relevant.recompute_attention = pass.plan.recompute_attention;
  relevant.recompute_mlp = pass.plan.recompute_mlp;
  relevant.recompute_segment = pass.plan.recompute_segment;
  relevant.offload = pass.plan.offload, relevant.offload_to = pass.plan.offload_to;
  if (!relevant.offload.empty() && relevant.offload_to == Place::kPeer) relevant.peers = pass.plan.peers;
  relevant.tiles = pass.tiles;
  return to_string(relevant);
}

}  // namespace

const Memory& DryRuns::of(const TapePass& pass) {
  const std::string key = key_of(pass);
  const auto found = runs_.find(key);
  if (found != runs_.end()) return found->second;
  return runs_.emplace(key, dry_run(pass, machine_)).first->second;
}

}  // namespace spillway::trainer
