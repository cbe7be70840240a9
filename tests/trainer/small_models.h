// Models small enough that every request of a step can fail in a test.
#pragma once
#include "spillway/trainer/plan/architecture.h"

namespace spillway::trainer {

inline Architecture small_model(Family family, uint32_t layers, uint32_t width, uint32_t heads,
                                uint32_t context, double dropout = 0) {
  Architecture model = Architecture::usual(family, layers, width, heads, context);
  model.dropout = dropout;
  return model;
}
inline Architecture small_gpt2(uint32_t layers, uint32_t width, uint32_t heads, uint32_t context,
                               double dropout = 0) {
  return small_model(Family::kGpt2, layers, width, heads, context, dropout);
}

}  // namespace spillway::trainer
