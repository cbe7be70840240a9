#include "trainer/plan/parameters/parameter_table.h"

#include "trainer/plan/parameters/table.h"

namespace spillway::trainer {

uint64_t Parameter::elements() const {
  uint64_t count = 1;
  for (const int64_t size : sizes) count *= static_cast<uint64_t>(size);
  return count;
}

std::vector<Parameter> parameter_table(const Architecture& model) {
  switch (model.family) {
    case Family::kGpt2:
      return gpt2_table(model);
    case Family::kLlama:
      return llama_table(model);
    case Family::kT5:
      return t5_table(model);
  }
  return {};
}

std::vector<int> units_of(const std::vector<Parameter>& table) {
  std::vector<int> units;
  units.reserve(table.size());
  const Parameter* before = nullptr;
  int unit = -1;
  for (const Parameter& parameter : table) {
    const bool same = before != nullptr && before->layer == parameter.layer && before->part == parameter.part;
    if (parameter.layer >= 0 && !same) ++unit;
    units.push_back(parameter.layer >= 0 ? unit : -1);
    before = &parameter;
  }
  return units;
}

uint64_t parameter_count(const Architecture& model) {
  uint64_t count = 0;
  for (const Parameter& parameter : parameter_table(model)) count += parameter.elements();
  return count;
}

uint64_t layer_parameter_count(const Architecture& model, uint32_t layer) {
  uint64_t count = 0;
  for (const Parameter& parameter : parameter_table(model))
    if (parameter.layer == int(layer)) count += parameter.elements();
  return count;
}

}  // namespace spillway::trainer
