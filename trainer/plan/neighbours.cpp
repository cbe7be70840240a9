#include <algorithm>
#include <tuple>
#include <utility>

#include "spillway/trainer/plan/estimate.h"
#include "spillway/trainer/plan/plan.h"

namespace spillway::trainer {
namespace {

uint64_t less(uint64_t before, uint64_t after) {
  return before > after ? before - after : 0;
}

// Half of the layers first, then all: two steps from none to all, whatever the depth. The first layers are
// taken, because their activations live longest.
bool more_recompute(Plan* plan, const Shape& shape) {
  const size_t have = plan->recompute.size(), half = (shape.layers() + 1) / 2;
  if (have >= shape.layers()) return false;
  const size_t want = have < half ? half : shape.layers();
  for (uint32_t layer = 0; layer < shape.layers() && plan->recompute.size() < want; ++layer)
    plan->recompute.insert(layer);
  return true;
}

bool to_second_device(Plan* plan, const Shape& shape, const Machine& machine) {
  if (machine.devices < 2 || shape.layers() < 2 || !plan->placement.empty()) return false;
  for (uint32_t layer = shape.layers() - shape.layers() / 2; layer < shape.layers(); ++layer)
    plan->placement[layer] = 1;
  return true;
}

bool halve(uint32_t* batch) {
  if (*batch < 2) return false;
  *batch = (*batch + 1) / 2;
  return true;
}

// A bit-exact move costs the failed micro-batch, a split of the micro-batch the whole step.
uint64_t redo_us(const Move& move, const Shape& shape, const Estimate& now) {
  if (move.kind == MoveKind::kSplitEvaluation) return 0;
  if (move.guarantee != Guarantee::kBitExact) return now.step_us;
  const uint64_t batch = std::max(1u, shape.batch);
  return now.step_us * std::min<uint64_t>(move.to.micro_batch, batch) / batch;
}

bool apply(MoveKind kind, Plan* plan, const Shape& shape, const Machine& machine) {
  switch (kind) {
    case MoveKind::kRecompute:
      return more_recompute(plan, shape);
    case MoveKind::kOptimizerToHost:
      return std::exchange(plan->optimizer, Place::kHost) == Place::kDevice;
    case MoveKind::kLayersToSecondDevice:
      return to_second_device(plan, shape, machine);
    case MoveKind::kSplitMicroBatch:
      plan->micro_batch = std::min(plan->micro_batch, std::max(1u, shape.batch));
      return halve(&plan->micro_batch);
    case MoveKind::kSplitEvaluation:
      return halve(&plan->evaluation_batch);
  }
  return false;
}

}  // namespace

const char* name_of(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::kBitExact:
      return "bit_exact";
    case Guarantee::kNumericallyEqual:
      return "numerically_equal";
    case Guarantee::kStatisticsChange:
      return "statistics_change";
  }
  return "?";
}

const char* name_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::kRecompute:
      return "recompute";
    case MoveKind::kOptimizerToHost:
      return "optimizer_to_host";
    case MoveKind::kLayersToSecondDevice:
      return "layers_to_second_device";
    case MoveKind::kSplitMicroBatch:
      return "split_micro_batch";
    case MoveKind::kSplitEvaluation:
      return "split_evaluation";
  }
  return "?";
}

Guarantee guarantee_of(MoveKind kind) {
  const bool splits = kind == MoveKind::kSplitMicroBatch || kind == MoveKind::kSplitEvaluation;
  return splits ? Guarantee::kNumericallyEqual : Guarantee::kBitExact;
}

std::vector<Move> neighbours(const Plan& plan, const Shape& shape, const Machine& machine, Guarantee floor) {
  const Plan from = normalised(plan);
  const Estimate now = estimate(shape, from, machine);
  std::vector<Move> moves;
  for (const MoveKind kind : kMoveKinds) {
    Move move{.kind = kind, .to = from, .name = name_of(kind), .guarantee = guarantee_of(kind)};
    if (move.guarantee > floor || !apply(kind, &move.to, shape, machine)) continue;
    const Estimate then = estimate(shape, move.to, machine);
    move.bytes_freed = less(now.device_peak_bytes[0], then.device_peak_bytes[0]);
    move.evaluation_bytes_freed = less(now.evaluation_peak_bytes[0], then.evaluation_peak_bytes[0]);
    move.cost_us = redo_us(move, shape, now) + less(then.step_us, now.step_us);
    moves.push_back(std::move(move));
  }
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return std::tie(a.cost_us, a.guarantee, a.kind) < std::tie(b.cost_us, b.guarantee, b.kind);
  });
  return moves;
}

}  // namespace spillway::trainer
