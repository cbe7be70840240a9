// The order in which the micro-batches of a step have their forwards and backwards.
//
// Thread-safety: one thread. Ownership: the micro-batches under way. Errors: those of the micro-batches;
// `drop` then.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "trainer/step/micro_batches/micro_batch.h"

namespace spillway::trainer {

class MicroBatchSchedule {
 public:
  virtual ~MicroBatchSchedule() = default;

  struct Run {
    uint32_t count = 0;  // micro-batches of the step
    uint32_t most = 1;   // under way
    std::function<std::unique_ptr<MicroBatch>(uint32_t number)> begin;
    std::function<void(const MicroBatch&)> before_backward;
  };

  // The random state that micro-batch `number` begins with is the present one, unless it has begun.
  virtual void save(uint32_t number) = 0;
  // Nothing is under way any more, and the random state is what `number` began with.
  virtual void restore(uint32_t number) = 0;
  // Nothing is under way any more.
  virtual void drop() = 0;
  // Another step, or the same once more.
  virtual void clear() = 0;
  // Until micro-batch `number` is done, which all before it are; later ones may be under way then. Returns
  // its loss.
  virtual at::Tensor run(uint32_t number, const Run& run) = 0;
};

}  // namespace spillway::trainer
