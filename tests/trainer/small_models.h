// Models small enough that every request of a step can fail in a test.
#pragma once
#include <utility>

#include "trainer/plan/parameters/parameter_table.h"

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

// Of each family, with what only that family has.
inline Architecture small_model_of(Family family, double dropout) {
  Architecture model = small_model(family, 2, 16, 2, 8, dropout);
  if (family == Family::kLlama) model.key_value_heads = 1;
  if (family == Family::kT5) model.gated = true, model.context = 12;
  return model;
}

// Of no model: numbers of a layer, or of none.
inline Parameter plain_parameter(int layer, std::vector<int64_t> sizes) {
  Parameter parameter;
  parameter.layer = layer, parameter.sizes = std::move(sizes);
  return parameter;
}

}  // namespace spillway::trainer
