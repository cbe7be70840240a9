#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {

std::string sequence_of(const Plan& plan, uint32_t zero) {
  if (zero < 2) return "";
  Plan of;
  of.micro_batch = plan.micro_batch;
  of.tiles = plan.tiles;
  if (zero < 3) return to_string(of);
  of.evaluation_batch = plan.evaluation_batch;
  of.recompute = plan.recompute;
  of.recompute_attention = plan.recompute_attention, of.recompute_mlp = plan.recompute_mlp;
  of.recompute_segment = plan.recompute_segment;
  return to_string(of);
}

bool same_sequence(const Plan& one, const Plan& other, uint32_t zero) {
  return sequence_of(normalised(one), zero) == sequence_of(normalised(other), zero);
}

}  // namespace spillway::trainer
