// The trainer's plan moves as strategies of the ladder.
//
// The ladder asks from the thread whose request failed; the answers are numbers that `update` left in atomics
// when the plan last changed, so that an offer allocates nothing and calls nobody. Thread-safety: `update`
// and `evaluating` from the training thread, offers from any. Ownership: registered for the object's
// lifetime. Errors: without a core nothing is registered.
#pragma once
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/runtime/core.h"

namespace spillway::trainer {

class PlanMoves {
 public:
  PlanMoves(const Core& core, const Shape& shape, const Machine& machine, Guarantee floor);
  ~PlanMoves();
  PlanMoves(const PlanMoves&) = delete;

  // Offers the moves from `plan`, but none to a plan that was refused.
  void update(const Plan& plan, const std::vector<Plan>& refused = {});
  // Where nobody would carry a move out.
  void offer_nothing();
  void evaluating(bool now) { evaluating_.store(now, std::memory_order_relaxed); }
  std::optional<MoveKind> kind_of(spillway_strategy_id id) const;

 private:
  static constexpr size_t kMoves = std::size(kMoveKinds), kDevices = 8;
  struct Entry {
    PlanMoves* owner = nullptr;
    spillway_strategy_id id = 0;
    // By the device that is short of memory.
    std::array<std::atomic<uint64_t>, kDevices> cost_us{};
    std::array<std::atomic<uint64_t>, kDevices> bytes{}, evaluation_bytes{};  // 0: nothing to offer
  };

  void update(const Plan& plan, const std::vector<Plan>& refused, uint32_t device);
  static spillway_offer offer(void* context, const spillway_oom* oom);

  const Core& core_;
  const Shape shape_;
  const Machine machine_;
  const Guarantee floor_;
  std::atomic<bool> evaluating_{false};
  std::array<Entry, kMoves> entries_;
};

}  // namespace spillway::trainer
