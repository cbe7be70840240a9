// What a run came to, also where an exception ended it.
//
// Thread-safety: one thread. Errors: none; they become the results' exit code and verdict.
#pragma once
#include <functional>

#include "trainer/app/results.h"

namespace spillway::trainer {

struct RunOutcome {
  Results results;
  bool all_end_so = false;  // every rank knows the fault, and ends for it
};

RunOutcome outcome_of(const std::function<Results()>& run);

}  // namespace spillway::trainer
