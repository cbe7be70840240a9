#include "trainer/recovery/plan_moves.h"

namespace spillway::trainer {

PlanMoves::PlanMoves(const Core& core, const Shape& shape, const Machine& machine, Guarantee floor)
    : core_(core), shape_(shape), machine_(machine), floor_(floor) {
  if (core.loaded()) core.allow(static_cast<spillway_guarantee>(floor));
  for (size_t i = 0; i < kMoves; ++i) {
    entries_[i].owner = this;
    if (!core.loaded()) continue;
    const spillway_strategy strategy{.size = sizeof strategy,
                                     .name = name_of(kMoveKinds[i]),
                                     .guarantee = static_cast<uint32_t>(guarantee_of(kMoveKinds[i])),
                                     .needs = SPILLWAY_NEEDS_UNWINDING,
                                     .offer = offer,
                                     .relieve = [](void*, const spillway_oom*) -> uint64_t { return 0; },
                                     .context = &entries_[i]};
    core.register_strategy(&strategy, &entries_[i].id);
  }
}

PlanMoves::~PlanMoves() {
  for (const Entry& entry : entries_)
    if (entry.id) core_.unregister_strategy(entry.id);
}

spillway_offer PlanMoves::offer(void* context, const spillway_oom* oom) {
  const Entry& entry = *static_cast<const Entry*>(context);
  if (oom->device < 0 || static_cast<size_t>(oom->device) >= kDevices) return {0, 0};
  const auto& bytes =
      entry.owner->evaluating_.load(std::memory_order_relaxed) ? entry.evaluation_bytes : entry.bytes;
  return {bytes[oom->device].load(std::memory_order_relaxed), entry.cost_us.load(std::memory_order_relaxed)};
}

void PlanMoves::update(const Plan& plan) {
  const Estimate now = estimate(shape_, plan, machine_);
  const std::vector<Move> moves = neighbours(plan, shape_, machine_, floor_);
  for (size_t i = 0; i < kMoves; ++i) {
    const Move* move = nullptr;
    for (const Move& candidate : moves)
      if (candidate.kind == kMoveKinds[i]) move = &candidate;
    const Estimate then = move ? estimate(shape_, move->to, machine_) : now;
    const auto freed = [](uint64_t before, uint64_t after) { return before > after ? before - after : 0; };
    for (size_t device = 0; device < std::min(kDevices, now.device_peak_bytes.size()); ++device) {
      entries_[i].bytes[device] = freed(now.device_peak_bytes[device], then.device_peak_bytes[device]);
      entries_[i].evaluation_bytes[device] =
          freed(now.evaluation_peak_bytes[device], then.evaluation_peak_bytes[device]);
    }
    entries_[i].cost_us = move ? move->cost_us : 0;
  }
}

std::optional<MoveKind> PlanMoves::kind_of(spillway_strategy_id id) const {
  for (size_t i = 0; i < kMoves; ++i)
    if (id != 0 && entries_[i].id == id) return kMoveKinds[i];
  return std::nullopt;
}

}  // namespace spillway::trainer
