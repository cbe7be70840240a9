// What a step that is made by several ranks asks of the others (trainer/step/recoverable_step.h).
//
// Thread-safety: one thread. Errors: RanksEnded where another rank fails.
#pragma once
#include "trainer/ranks/agreement/word.h"

namespace spillway::trainer {

class RanksOfStep {
 public:
  virtual ~RanksOfStep() = default;

  virtual uint32_t rank() const = 0;
  virtual SharedWork shared_work() const = 0;
  // Whether a rank has asked all to undo the step. Known when the commit is prepared, or the evaluation done.
  virtual bool undo_is_asked() const = 0;
  // This rank asks. It takes part in what the ranks still exchange in the step, or in the evaluation, without
  // computing anything, so that no other rank waits for it. Allocates no device memory.
  virtual void ask_to_undo(bool evaluating) = 0;
  // Of all ranks' words, in which `attempts` are made at most.
  virtual Decision decide(const Word& mine, uint32_t attempts) = 0;
};

}  // namespace spillway::trainer
