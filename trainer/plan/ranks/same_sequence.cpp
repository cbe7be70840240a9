#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {

Plan with_sequence_of(Plan own, const Plan& of, const SharedWork& work) {
  if (!work.has_sequence()) return own;
  own.micro_batch = of.micro_batch;
  if (work.in_stages) own.evaluation_batch = of.evaluation_batch;
  if (work.zero < 3) return own;
  own.evaluation_batch = of.evaluation_batch;
  own.recompute = of.recompute;
  own.recompute_attention = of.recompute_attention, own.recompute_mlp = of.recompute_mlp;
  own.recompute_segment = of.recompute_segment;
  return own;
}

std::string sequence_of(const Plan& plan, const SharedWork& work) {
  return work.has_sequence() ? to_string(with_sequence_of(Plan{}, plan, work)) : "";
}

bool same_sequence(const Plan& one, const Plan& other, const SharedWork& work) {
  return sequence_of(normalised(one), work) == sequence_of(normalised(other), work);
}

}  // namespace spillway::trainer
