#include "trainer/plan/parameters/weight_storage.h"

#include <algorithm>

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {
namespace {

void add_tiles(const Numerics& numerics, const MatrixCut& cut, UnitBytes::Tiled* tiled) {
  const auto numbers = static_cast<uint64_t>(cut.rows * cut.columns);
  tiled->matrices.push_back({numbers * numerics.weight_bytes(), numbers * numerics.gradient_bytes()});
  tiled->weights += tiled->matrices.back().weights;
  tiled->gradients += tiled->matrices.back().gradients;
  tiled->most_weights =
      std::max(tiled->most_weights, static_cast<uint64_t>(cut.most_weights()) * numerics.weight_bytes());
  tiled->most_gradients = std::max(tiled->most_gradients,
                                   static_cast<uint64_t>(cut.most_gradients()) * numerics.gradient_bytes());
  tiled->rows += static_cast<uint64_t>(cut.row_tiles());
  tiled->columns += static_cast<uint64_t>(cut.column_tiles());
  tiled->runs += static_cast<uint64_t>(cut.update_tiles());
}

}  // namespace

bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter) {
  return numerics.precision == Precision::kInt8 && parameter.layer >= 0 && parameter.sizes.size() == 2;
}

uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter) {
  if (!is_in_8_bits(numerics, parameter)) return parameter.elements() * numerics.weight_bytes();
  return parameter.elements() + static_cast<uint64_t>(parameter.sizes[0]) * numerics.weight_bytes();
}

std::vector<UnitBytes> unit_bytes(const Numerics& numerics, const std::vector<Parameter>& table,
                                  uint32_t tiles) {
  const std::vector<int> numbers = units_of(table);
  std::vector<UnitBytes> units;
  for (size_t i = 0; i < table.size(); ++i) {
    if (numbers[i] < 0) continue;
    const auto unit = static_cast<size_t>(numbers[i]);
    if (unit >= units.size()) units.push_back({.layer = static_cast<uint32_t>(table[i].layer)});
    if (const auto cut = cut_of(table[i], tiles)) {
      add_tiles(numerics, *cut, &units[unit].tiled);
      continue;
    }
    const uint64_t elements = table[i].elements(), stored = stored_bytes(numerics, table[i]);
    const uint64_t scales = is_in_8_bits(numerics, table[i]) ? stored - elements : 0;
    units[unit].weights += in_a_block(stored - scales) + in_a_block(scales);
    units[unit].gradients += in_a_block(elements * numerics.gradient_bytes());
  }
  return units;
}

}  // namespace spillway::trainer
