// The parameters of a model, by name, in the order in which the trainer keeps them.
//
// Thread-safety: pure functions. Errors: none; REQUIRES: fault_of(model) is "".
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"

namespace spillway::trainer {

// Of a pipeline of stages, which has what belongs to no layer.
enum class End : uint8_t { kFirst, kLast, kBoth };

struct Parameter {
  std::string name;      // Hugging Face's, such as "transformer.h.0.attn.c_attn.weight"
  std::string key;       // how the forward function names it: the name without its layer's prefix
  int layer = -1;        // -1: belongs to no layer, and stays on the first device
  End end{};             // of one that belongs to no layer
  bool is_twin = false;  // it is at both ends of several stages
  Part part{};           // of the layer
  std::vector<int64_t> sizes;
  double mean = 0, deviation = 0;  // of its values at the start of a training

  uint64_t elements() const;
};

// The parameters of a layer stand together, and in it those of a part; the layers follow in order, behind the
// ones that belong to none.
std::vector<Parameter> parameter_table(const Architecture& model);

// Of each parameter the number of its unit, or -1: a layer comes to a device from elsewhere in units, its
// parts, which are numbered in the order of the table. See trainer/plan/schedule.h.
std::vector<int> units_of(const std::vector<Parameter>& table);

uint64_t parameter_count(const Architecture& model);
uint64_t layer_parameter_count(const Architecture& model, uint32_t layer);

}  // namespace spillway::trainer
