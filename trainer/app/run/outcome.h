// What a run came to, also where an exception ended it.
//
// Thread-safety: one thread. Errors: none; they become the results' exit code and verdict.
#pragma once
#include <functional>

#include "trainer/app/results.h"

namespace spillway::trainer {

// Whose a fault is that ended the run of one of several ranks.
enum class FaultOf : uint8_t {
  kThisRank,
  kAll,            // every rank knows it, and ends for it
  kThisOrAnother,  // an error of the device, which the end of another rank may have led to
};

struct RunOutcome {
  Results results;
  FaultOf of = FaultOf::kThisRank;
};

RunOutcome outcome_of(const std::function<Results()>& run);

}  // namespace spillway::trainer
