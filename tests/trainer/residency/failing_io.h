// Failures of the reads and writes of a block store: the n-th of a kind, once or from there on.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/sanitized.h"
#include "trainer/residency/nvme/io_queue.h"

namespace spillway::trainer {

struct IoFault {
  enum class Kind : uint8_t { kError, kShort, kFlippedBit };
  bool writes = false;
  uint64_t at = 0;  // counted from 1; 0: never
  bool persistent = false;
  Kind kind = Kind::kError;
  int error = 0;           // an errno; 0: nothing is moved, as at the end of a file
  size_t short_bytes = 0;  // that are moved
};

// In place of every queue that is made while it lives.
class FailingIo {
 public:
  FailingIo() {
    fault = {};
    fired = reads = writes = 0;
    wrap_io_queues([](std::unique_ptr<IoQueue> inner) -> std::unique_ptr<IoQueue> {
      return std::make_unique<Queue>(std::move(inner));
    });
  }
  ~FailingIo() { wrap_io_queues(nullptr); }

  // Counts from now on.
  static void arm(const IoFault& planned) {
    fault = planned;
    fired = reads = writes = 0;
  }

  static inline IoFault fault;
  static inline uint64_t fired = 0, reads = 0, writes = 0;

 private:
  class Queue : public IoQueue {
   public:
    explicit Queue(std::unique_ptr<IoQueue> inner) : inner_(std::move(inner)) {}
    void submit(IoRequest* request) override {
      const uint64_t number = ++(request->writes ? writes : reads);
      const bool fails = fault.at != 0 && request->writes == fault.writes &&
                         (number == fault.at || (fault.persistent && number > fault.at));
      if (!fails) return inner_->submit(request);
      ++fired;
      if (fault.kind == IoFault::Kind::kError) {
        request->result = -fault.error;
        failed_.push_back(request);
        return;
      }
      if (fault.kind == IoFault::Kind::kShort) request->bytes = std::min(request->bytes, fault.short_bytes);
      if (fault.kind == IoFault::Kind::kFlippedBit) flipped_.push_back(request);
      inner_->submit(request);
    }
    IoRequest* ended(bool wait) override {
      if (!failed_.empty()) {
        IoRequest* request = failed_.front();
        failed_.pop_front();
        return request;
      }
      IoRequest* request = inner_->ended(wait);
      if (std::erase(flipped_, request) > 0) request->data[request->bytes / 2] ^= std::byte{16};
      return request;
    }

   private:
    const std::unique_ptr<IoQueue> inner_;
    std::deque<IoRequest*> failed_, flipped_;
  };
};

// Runs with the fault at 1, 1 + every, ... until a run needs fewer; returns how many had it. A sanitized
// program takes every fifth of these places, and counts it as five.
template <typename Run>
uint64_t at_each(IoFault fault, uint64_t every, const Run& run) {
  const uint64_t step = kSanitized ? 5 : 1;
  uint64_t points = 0;
  for (; !testing::Test::HasFailure(); points += step) {
    fault.at = 1 + points * every;
    if (!run(fault)) break;
  }
  return points;
}

}  // namespace spillway::trainer
