// What of a plan decides which things ranks exchange in a step, and in which order.
//
// Ranks that share nothing but the optimizer's states exchange the same things under all plans. With ZeRO-2
// each micro-batch's gradients are added up over the ranks, so that all have as many micro-batches. With
// ZeRO-3 the weights come from all ranks for each use, so that all use the same layers in the same order.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <string>

#include "trainer/plan/plan.h"

namespace spillway::trainer {

// `zero`: the stage of ZeRO, of several ranks.
bool same_sequence(const Plan& one, const Plan& other, uint32_t zero);
// `own` with all of `of` that the sequence follows from, and nothing else.
Plan with_sequence_of(Plan own, const Plan& of, uint32_t zero);
// The same for people: equal texts where the sequences are.
std::string sequence_of(const Plan& plan, uint32_t zero);

}  // namespace spillway::trainer
