// What of a plan decides which things ranks exchange in a step, and in which order.
//
// Ranks that share nothing but the optimizer's states exchange the same things under all plans. With ZeRO-2
// each micro-batch's gradients are added up over the ranks, so that all have as many micro-batches. With
// ZeRO-3 the weights come from all ranks for each use, so that all use the same layers in the same order.
// Stages of a pipeline pass each other micro-batches, and those of an evaluation: of as many rows on all.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <string>

#include "trainer/plan/plan.h"

namespace spillway::trainer {

// What ranks do together in a step.
struct SharedWork {
  uint32_t zero = 0;       // the stage of ZeRO, of several replicas
  bool in_stages = false;  // of a pipeline
  bool has_sequence() const { return zero >= 2 || in_stages; }
};

bool same_sequence(const Plan& one, const Plan& other, const SharedWork& work);
// `own` with all of `of` that the sequence follows from, and nothing else.
Plan with_sequence_of(Plan own, const Plan& of, const SharedWork& work);
// The same for people: equal texts where the sequences are.
std::string sequence_of(const Plan& plan, const SharedWork& work);

}  // namespace spillway::trainer
