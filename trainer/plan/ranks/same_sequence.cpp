#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {

Plan with_sequence_of(Plan own, const Plan& of, uint32_t zero) {
  if (zero < 2) return own;
  own.micro_batch = of.micro_batch;
  if (zero < 3) return own;
  own.evaluation_batch = of.evaluation_batch;
  own.recompute = of.recompute;
  own.recompute_attention = of.recompute_attention, own.recompute_mlp = of.recompute_mlp;
  own.recompute_segment = of.recompute_segment;
  return own;
}

std::string sequence_of(const Plan& plan, uint32_t zero) {
  return zero < 2 ? "" : to_string(with_sequence_of(Plan{}, plan, zero));
}

bool same_sequence(const Plan& one, const Plan& other, uint32_t zero) {
  return sequence_of(normalised(one), zero) == sequence_of(normalised(other), zero);
}

}  // namespace spillway::trainer
