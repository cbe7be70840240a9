// The dry runs of a shape's plans: of a micro-batch's forward, loss and backward, or of an evaluation's
// forward and losses.
//
// What a pass needs depends on a part of its plan alone. A run is made once for all plans that agree in it:
// they may differ in what is on the host and in how many micro-batches are under way, and those of an
// evaluation in what is computed again.
//
// Thread-safety: one thread. Ownership: the runs; borrows the machine. Errors: none.
#pragma once
#include <string>
#include <unordered_map>

#include "trainer/plan/tapes/tapes.h"

namespace spillway::trainer {

class DryRuns {
 public:
  explicit DryRuns(const Machine& machine) : machine_(machine) {}
  // Of a pass of always the same model and precision. Stays where it is.
  const Memory& of(const TapePass& pass);

 private:
  const Machine& machine_;
  std::unordered_map<std::string, Memory> runs_;
};

}  // namespace spillway::trainer
