// The order in which the micro-batches of a step have their forwards and backwards, and the random state that
// each of them begins with.
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
  // `random`: the devices whose generators are part of a micro-batch's state, that of the forward first.
  explicit MicroBatchSchedule(std::vector<at::Device> random) : devices_(std::move(random)) {}
  virtual ~MicroBatchSchedule() = default;

  struct Run {
    uint32_t count = 0;  // micro-batches of the step
    uint32_t most = 1;   // under way
    std::function<std::unique_ptr<MicroBatch>(uint32_t number)> begin;
    std::function<void(const MicroBatch&)> before_backward;
  };

  // The random state that micro-batch `number` begins with is the present one, unless it has begun.
  void save(uint32_t number);
  // Nothing is under way any more, and the random state is what `number` began with.
  void restore(uint32_t number);
  // Nothing is under way any more.
  virtual void drop() { under_way_.clear(); }
  // Another step, or the same once more.
  void clear();
  // Layers have other devices now, which may draw another number of random numbers for as many rows.
  virtual void placement_changed() {}
  // Until micro-batch `number` is done, which all before it are; later ones may be under way then. Returns
  // its loss.
  virtual at::Tensor run(uint32_t number, const Run& run) = 0;

 protected:
  using Randoms = std::map<uint32_t, RandomState>;  // by micro-batch

  uint32_t next(uint32_t number) const {
    return under_way_.empty() ? number : under_way_.back()->number() + 1;
  }
  // All up to `number` are done.
  void forget_starts(uint32_t number) { starts_.erase(starts_.begin(), starts_.upper_bound(number)); }

  const std::vector<at::Device> devices_;
  std::deque<std::unique_ptr<MicroBatch>> under_way_;
  Randoms starts_;
};

}  // namespace spillway::trainer
