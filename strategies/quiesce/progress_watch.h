// Whether the devices' queued work gets on: a wait for it ends when it has stood still for some seconds,
// because then it may wait for what is held meanwhile, or for another process that waits for this one.
//
// Thread-safety: one thread at a time. Errors: none.
#pragma once
#include <algorithm>
#include <chrono>

#include "allocator/streams/program_streams.h"

namespace spillway {

class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // More than a mark's distance from the next takes in most programs that are not stuck; and where work is as
  // slow as that, twice what it took before. That may have been a wait for another rank, so it has an end.
  static constexpr auto kPatience = std::chrono::seconds(3), kMostPatience = std::chrono::seconds(30);
  static constexpr double kTimesTheSlowest = 2;

  explicit ProgressWatch(Allocator& allocator)
      : allocator_(allocator), passed_(passed_marks(allocator)), patience_(patience_of(allocator)) {}
  bool stands_still() {
    const uint64_t passed = passed_marks(allocator_);
    const Clock::time_point now = Clock::now();
    if (passed != passed_) changed_ = now;
    passed_ = passed;
    return now - changed_ >= patience_;
  }

 private:
  static Clock::duration patience_of(Allocator& allocator) {
    const std::chrono::duration<double, std::micro> slow(kTimesTheSlowest * slowest_marks_us(allocator));
    return std::clamp<Clock::duration>(std::chrono::duration_cast<Clock::duration>(slow), kPatience,
                                       kMostPatience);
  }

  Allocator& allocator_;
  uint64_t passed_;
  Clock::duration patience_;
  Clock::time_point changed_ = Clock::now();
};

}  // namespace spillway
