// How much of a device the program's blocks have needed lately, and since when nothing had to leave it: what
// decides whether memory comes back from other tiers, and how much. Its time is the place in the order of
// allocations and frees.
//
// Thread-safety: none; the heap's lock guards it. Errors: none.
#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway {

class NeedHistory {
 public:
  // `need`: what the program's blocks take of the device now.
  void note(uint64_t order, uint64_t need) {
    peak_ = std::max(peak_, need);
    if (order - stretch_began_ < quiet_orders()) return;
    peak_before_ = peak_;
    peak_ = need;
    stretch_began_ = order;
  }
  void moved_out(uint64_t order, uint64_t need) {
    interval_ = last_out_ == 0 ? 0 : order - last_out_;
    last_out_ = stretch_began_ = order;
    peak_ = peak_before_ = need;
  }
  void moved_in(uint64_t bytes) { peak_ += bytes; }
  // What lies elsewhere makes the program too slow: a few steps of so many places are enough. 0: they are
  // not.
  void hurry(uint64_t orders_of_step) { hurried_ = kHurriedSteps * orders_of_step; }
  // As if something had left just now.
  void postpone(uint64_t order) { last_out_ = order; }

  bool quiet(uint64_t order) const { return order - last_out_ >= quiet_orders(); }
  // The most of this stretch of the order and the one before.
  uint64_t peak() const { return std::max(peak_, peak_before_); }

 private:
  static constexpr uint64_t kQuietOrders = 10'000, kQuietIntervals = 4, kHurriedSteps = 2;

  // A program that spills at each step gets more time than a step takes.
  uint64_t quiet_orders() const {
    return hurried_ != 0 ? hurried_ : std::max(kQuietOrders, kQuietIntervals * interval_);
  }

  uint64_t peak_ = 0, peak_before_ = 0, stretch_began_ = 0;
  uint64_t last_out_ = 0, interval_ = 0, hurried_ = 0;
};

}  // namespace spillway
