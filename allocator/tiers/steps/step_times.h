// How long the program's steps take with memory elsewhere and without, per place in the order of allocations
// and frees; and how far what is predicted of a use over a link is from what it takes.
//
// A prediction counts each use that is seen as one pass over the block. Kernels may read it more often, and
// some are not seen at all. Where steps without anything elsewhere were seen, the time is measured against
// theirs. Where none was, it is taken to be the rest that the predicted passes leave.
//
// Thread-safety: none; the heap's lock guards it. Errors: none. Units: microseconds.
#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway {

// One step, or several.
struct StepSample {
  double us = 0;        // on the device, without the exchange of blocks' pages
  double orders = 0;    // places in the order
  double link_us = 0;   // of `us`, by the uses of what lies elsewhere and the links' bandwidths
  bool before = false;  // nothing lay elsewhere, from end to end
};

class StepTimes {
 public:
  void add(const StepSample& step) {
    if (step.us <= 0 || step.orders <= 0) return;
    const double us = step.us / step.orders, link_us = step.link_us / step.orders;
    orders_ = step.orders;
    step.before ? add_before(us) : add_with(us, link_us);
  }
  // Other blocks lie elsewhere than did: steps with the former say nothing of them.
  void blocks_changed() { with_ = {}; }

  // Without what lies elsewhere; 0: not known.
  double us_per_order() const {
    if (before_.steps != 0) return before_.us;
    return with_.steps == 0 ? 0 : std::max(with_.us - with_.link_us, with_.us / kMostAssumed);
  }
  // With it ÷ without it; 0: nothing lies elsewhere, or no step was seen without.
  double measured() const { return is_measured() ? std::max(1.0, with_.us / before_.us) : 0; }
  // The same by the uses seen and the links alone; 1: none.
  double predicted() const {
    return with_.steps == 0 ? 1 : 1 + with_.link_us * (before_.steps != 0 ? 1 : factor()) / us_per_order();
  }
  // As it is, measured or else predicted.
  double now() const { return expected(with_.link_us); }
  // As it would be with predicted uses of `link_us` for each place in the order. REQUIRES: us_per_order() !=
  // 0.
  double expected(double link_us) const {
    if (!is_measured()) return 1 + factor() * link_us / us_per_order();
    if (link_us < with_.link_us) return 1 + (measured() - 1) * link_us / with_.link_us;
    return measured() + factor() * (link_us - with_.link_us) / us_per_order();
  }
  // Steps with something elsewhere, since the last one without.
  uint64_t steps() const { return with_.steps; }
  // Places in the order that the last step took; 0: none was seen.
  uint64_t orders() const { return static_cast<uint64_t>(orders_); }

 private:
  static constexpr double kMostAssumed = 20;  // times as long as without, where that was never seen
  static constexpr double kLeastFactor = 1.0 / 16, kMostFactor = 64;
  static constexpr double kMean = 8;  // steps

  struct Mean {
    uint64_t steps = 0;
    double us = 0, link_us = 0;
    void add(double more_us, double more_link_us, double of) {
      const double share = 1 / std::min(static_cast<double>(++steps), of);
      us += (more_us - us) * share;
      link_us += (more_link_us - link_us) * share;
    }
  };

  // What a use takes ÷ what it was predicted to take. Uses that would take longer than all of a step were not
  // as many.
  double factor() const {
    if (before_.steps != 0 || with_.link_us == 0) return factor_;
    return std::min(1.0, (with_.us - us_per_order()) / with_.link_us);
  }
  bool is_measured() const { return with_.steps != 0 && before_.steps != 0; }

  // The first has what is done once: libraries start, kernels are chosen.
  void add_before(double us) {
    if (++seen_before_ == 2) before_ = {};
    before_.add(us, 0, kMean);
    with_ = {};
  }
  void add_with(double us, double link_us) {
    with_.add(us, link_us, 2);
    if (before_.steps == 0 || with_.link_us < kLeastLink * before_.us) return;
    factor_ = std::clamp((with_.us - before_.us) / with_.link_us, kLeastFactor, kMostFactor);
  }
  static constexpr double kLeastLink = 0.01;  // of a step: by less nothing is calibrated

  Mean before_, with_;
  uint64_t seen_before_ = 0;  // steps
  double factor_ = 1, orders_ = 0;
};

}  // namespace spillway
