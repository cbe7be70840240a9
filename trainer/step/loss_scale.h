// The dynamic loss scale of float16: a factor of the loss that keeps small gradients from becoming zero.
//
// An overflow halves it and its step is skipped; after `interval` updates without one it is doubled. Of
// Micikevicius et al., "Mixed Precision Training" (2018), with the numbers of torch.amp.GradScaler.
//
// Thread-safety: one thread. Errors: none.
#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway::trainer {

class LossScale {
 public:
  struct State {
    double scale = 1;
    uint64_t clean = 0;    // updates since the last overflow or doubling
    uint64_t skipped = 0;  // steps that had an overflow
  };

  // Always 1 unless `dynamic`.
  LossScale(bool dynamic, double first, uint64_t interval)
      : dynamic_(dynamic), interval_(interval), state_{.scale = dynamic ? first : 1} {}

  double value() const { return state_.scale; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

  void after_step(bool updated) {
    if (!dynamic_) return;
    if (!updated) {
      state_ = {.scale = std::max(kLeast, state_.scale / 2), .clean = 0, .skipped = state_.skipped + 1};
    } else if (++state_.clean >= interval_) {  // more: a run that goes on with a shorter interval
      state_.scale = std::min(kMost, state_.scale * 2);
      state_.clean = 0;
    }
  }

 private:
  static constexpr double kLeast = 1, kMost = 0x1p40;
  const bool dynamic_;
  const uint64_t interval_;
  State state_;
};

}  // namespace spillway::trainer
