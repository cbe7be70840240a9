// Whether the devices' queued work gets on: a wait for it ends when it has stood still for some seconds,
// because then it may wait for what is held meanwhile, or for another process that waits for this one.
//
// Thread-safety: one thread at a time. Errors: none.
#pragma once
#include <chrono>

#include "allocator/streams/program_streams.h"

namespace spillway {

class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // More than a mark's distance from the next takes in a program that is not stuck.
  static constexpr auto kPatience = std::chrono::seconds(3);

  explicit ProgressWatch(Allocator& allocator) : allocator_(allocator), passed_(passed_marks(allocator)) {}
  bool stands_still() {
    const uint64_t passed = passed_marks(allocator_);
    const Clock::time_point now = Clock::now();
    if (passed != passed_) changed_ = now;
    passed_ = passed;
    return now - changed_ >= kPatience;
  }

 private:
  Allocator& allocator_;
  uint64_t passed_;
  Clock::time_point changed_ = Clock::now();
};

}  // namespace spillway
