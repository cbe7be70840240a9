#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {

bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter) {
  return numerics.precision == Precision::kInt8 && parameter.layer >= 0 && parameter.sizes.size() == 2;
}

uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter) {
  if (!is_in_8_bits(numerics, parameter)) return parameter.elements() * numerics.weight_bytes();
  return parameter.elements() + static_cast<uint64_t>(parameter.sizes[0]) * numerics.weight_bytes();
}

std::vector<UnitBytes> unit_bytes(const Numerics& numerics, const std::vector<Parameter>& table) {
  const std::vector<int> numbers = units_of(table);
  std::vector<UnitBytes> units;
  for (size_t i = 0; i < table.size(); ++i) {
    if (numbers[i] < 0) continue;
    const auto unit = static_cast<size_t>(numbers[i]);
    if (unit >= units.size()) units.push_back({.layer = static_cast<uint32_t>(table[i].layer)});
    const uint64_t elements = table[i].elements(), stored = stored_bytes(numerics, table[i]);
    const uint64_t scales = is_in_8_bits(numerics, table[i]) ? stored - elements : 0;
    units[unit].weights += in_a_block(stored - scales) + in_a_block(scales);
    units[unit].gradients += in_a_block(elements * numerics.gradient_bytes());
  }
  return units;
}

}  // namespace spillway::trainer
