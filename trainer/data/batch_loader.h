// The batches of a training, made ahead of it by threads of their own, on the host.
//
// A batch belongs to its cursor alone, so that it is the same however many threads make it, and whether a
// step is redone, resumed or under another plan. At most `ahead` batches are made and not yet taken; then the
// threads wait. With no thread a batch is made when it is taken.
//
// Thread-safety: `take` is for one thread. Ownership: the destructor waits for the draws that are under way.
// Errors: what a draw throws, the `take` of its batch throws; the next `take` draws again.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace spillway::trainer {

class BatchLoader {
 public:
  struct Options {
    uint32_t workers = 1;
    uint32_t ahead = 2;  // batches, at least 1
  };
  // Fills the batch whose first row is at `cursor`. Several threads call it at once.
  using Draw = std::function<void(uint64_t cursor, std::span<int64_t> batch)>;

  // `rows` and `tokens` of a batch. Nothing is drawn before the first `take`.
  BatchLoader(Draw draw, uint32_t rows, size_t tokens, Options options);

  // Puts the batch at `cursor` into `batch`, whose memory it may take in exchange. Expects the batch behind
  // the last one; at any other cursor what was made ahead is dropped.
  void take(uint64_t cursor, std::vector<int64_t>* batch);

 private:
  struct Batch {
    explicit Batch(uint64_t at) : cursor(at) {}
    const uint64_t cursor;
    bool made = false;
    std::vector<int64_t> tokens;
    std::exception_ptr error;
  };

  void work(const std::stop_token& stop);
  std::shared_ptr<Batch> claim(
      const std::stop_token& stop);  // the next one to draw; null: it is time to stop
  void make(Batch& batch) const;
  std::shared_ptr<Batch> wait_for(uint64_t cursor);
  void begin_at(uint64_t cursor) SPILLWAY_REQUIRES(mutex_);

  const Draw draw_;
  const uint32_t rows_;
  const size_t tokens_;
  const uint32_t ahead_;

  Mutex<LockOrder::kLeaf> mutex_;
  std::condition_variable_any room_, made_;
  std::deque<std::shared_ptr<Batch>> batches_
      SPILLWAY_GUARDED_BY(mutex_);                                       // claimed and not taken, by cursor
  bool begun_ SPILLWAY_GUARDED_BY(mutex_) = false;                       // by the first `take`
  uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 0;                        // cursor of the next claim
  std::vector<std::vector<int64_t>> spare_ SPILLWAY_GUARDED_BY(mutex_);  // memory of batches that were taken

  std::vector<std::jthread> workers_;  // last: they end before what they use
};

}  // namespace spillway::trainer
