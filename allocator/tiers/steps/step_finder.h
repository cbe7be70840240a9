// Where the program's steps end. A block that lives as long as they do is used in the same way in each: what
// the order of allocations and frees goes on between two of its uses repeats from step to step. Or the
// program says.
//
// Thread-safety: none; the heap's lock guards it. Its time is the place in the order. Errors: none; a program
// without repetition has no steps.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "allocator/tiers/choice/access_frequency.h"
#include "allocator/tiling/block.h"

namespace spillway {

enum class StepBoundary : uint8_t {
  kNone,
  kBegins,  // of the first step; what lay before was none that is known to be whole
  kEnds,    // and the next begins
};

class StepFinder {
 public:
  // A block that was there at `born` is used at `order`. `learning_since`: uses are known from there on.
  StepBoundary used(const Block* block, uint64_t born, uint64_t order, uint64_t learning_since) {
    if (told_) return StepBoundary::kNone;
    if (block == marker_ && born == marker_born_) return visit(order);
    if ((is_gone() || order - last_use_ > patience()) &&
        (born <= learning_since || order - born > kOldOrders))
      follow(block, born, order);
    return StepBoundary::kNone;
  }
  // The program says that a step begins: from now on nothing else counts.
  StepBoundary begins() {
    const bool first = !told_;
    told_ = true;
    return first ? StepBoundary::kBegins : StepBoundary::kEnds;
  }

 private:
  static constexpr uint64_t kApart = 32;           // uses closer together are one visit
  static constexpr uint64_t kLeastStep = 128;      // what repeats within less is a layer
  static constexpr uint64_t kOldOrders = 1 << 14;  // no activation lives so long
  static constexpr uint64_t kPatience = 4096;
  static constexpr uint64_t kStretch = 4096;
  static constexpr unsigned kMostVisits = 32;  // of the block in a step

  // Its record may be another block's by now.
  bool is_gone() const {
    return marker_ == nullptr || marker_->state != BlockState::kLive ||
           AccessFrequency::born(marker_) != marker_born_;
  }
  // A block that was not used for so long will not be.
  uint64_t patience() const { return std::max(kPatience, 4 * longest_); }

  void follow(const Block* block, uint64_t born, uint64_t order) {
    *this = StepFinder();
    marker_ = block;
    marker_born_ = born;
    last_visit_ = last_use_ = order;
  }

  StepBoundary visit(uint64_t order) {
    const bool same = order - last_use_ < kApart;
    last_use_ = order;
    if (same) return StepBoundary::kNone;
    const uint64_t distance = order - last_visit_;
    last_visit_ = order;
    longest_ = std::max(longest_, distance);
    distances_[visits_++ % distances_.size()] = distance;
    ++since_boundary_;
    const unsigned in_step = visits_in_step();
    if (in_step == 0) return stretch(order);
    if (whole_ && since_boundary_ < in_step) return StepBoundary::kNone;
    return boundary(order, whole_ && since_boundary_ == in_step);
  }

  // Nothing repeats: a long stretch from one use to another has about as much of each part of a step.
  StepBoundary stretch(uint64_t order) {
    whole_ = false;
    return order - last_boundary_ < kStretch ? StepBoundary::kNone : boundary(order, last_boundary_ != 0);
  }
  StepBoundary boundary(uint64_t order, bool ends) {
    whole_ = true;
    since_boundary_ = 0;
    last_boundary_ = order;
    return ends ? StepBoundary::kEnds : StepBoundary::kBegins;
  }

  uint64_t distance(unsigned back) const { return distances_[(visits_ - 1 - back) % distances_.size()]; }
  static bool alike(uint64_t one, uint64_t other) {
    constexpr uint64_t kShare = 16, kLeast = 16;
    return (one > other ? one - other : other - one) <= kLeast + std::max(one, other) / kShare;
  }
  // The fewest visits after which all repeats; 0: it does not.
  unsigned visits_in_step() const {
    uint64_t orders = 0;
    for (unsigned count = 1; count <= kMostVisits && uint64_t{2} * count <= visits_; ++count) {
      orders += distance(count - 1);
      bool repeats = orders >= kLeastStep;
      for (unsigned back = 0; repeats && back < count; ++back)
        repeats = alike(distance(back), distance(back + count));
      if (repeats) return count;
    }
    return 0;
  }

  bool told_ = false;
  const Block* marker_ = nullptr;
  uint64_t marker_born_ = 0, last_visit_ = 0, last_use_ = 0, longest_ = 0;
  std::array<uint64_t, size_t{2} * kMostVisits> distances_{};
  uint64_t visits_ = 0;
  unsigned since_boundary_ = 0;  // visits
  bool whole_ = false;           // the visits since then are of one step
  uint64_t last_boundary_ = 0;   // 0: none yet
};

}  // namespace spillway
