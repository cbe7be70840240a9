#include "trainer/recovery/plan_moves.h"

#include <algorithm>

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
  return {bytes[oom->device].load(std::memory_order_relaxed),
          entry.cost_us[oom->device].load(std::memory_order_relaxed)};
}

void PlanMoves::update(const Plan& plan, const std::vector<Plan>& refused) {
  const auto devices = std::min(kDevices, size_t{std::max(1u, machine_.devices)});
  for (uint32_t device = 0; device < devices; ++device) update(plan, refused, device);
}

void PlanMoves::offer_nothing() {
  for (Entry& entry : entries_)
    for (size_t device = 0; device < kDevices; ++device)
      entry.bytes[device] = entry.evaluation_bytes[device] = entry.cost_us[device] = 0;
}

// A move of one kind may be another one for each device that can be short of memory.
void PlanMoves::update(const Plan& plan, const std::vector<Plan>& refused, uint32_t device) {
  const std::vector<Move> moves = neighbours(plan, shape_, machine_, floor_, device);
  for (size_t i = 0; i < kMoves; ++i) {
    const Move* move = nullptr;
    for (const Move& candidate : moves)
      if (candidate.kind == kMoveKinds[i] && std::ranges::find(refused, candidate.to) == refused.end())
        move = &candidate;
    entries_[i].bytes[device] = move ? move->bytes_freed : 0;
    entries_[i].evaluation_bytes[device] = move ? move->evaluation_bytes_freed : 0;
    entries_[i].cost_us[device] = move ? move->cost_us : 0;
  }
}

std::optional<MoveKind> PlanMoves::kind_of(spillway_strategy_id id) const {
  for (size_t i = 0; i < kMoves; ++i)
    if (id != 0 && entries_[i].id == id) return kMoveKinds[i];
  return std::nullopt;
}

}  // namespace spillway::trainer
