#include "trainer/plan/choices.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {

std::set<uint32_t> layers_here(const std::set<uint32_t>& layers, const Shape& shape) {
  return {layers.lower_bound(shape.first_layer()), layers.lower_bound(shape.end_layer())};
}

bool recompute_in_segments(Plan* plan, const Shape& shape) {
  constexpr uint32_t kLeastLayers = 4;
  const uint32_t in_a_row =
      std::min(shape.layers(), std::max(shape.model.layers, shape.model.decoder_layers));
  const size_t again = layers_here(plan->recompute, shape).size();
  if (plan->recompute_segment > 1 || again < shape.layers() || in_a_row < kLeastLayers) return false;
  plan->recompute_segment = static_cast<uint32_t>(std::lround(std::sqrt(in_a_row)));
  return true;
}

bool chunk_head(Plan* plan, const Architecture& model) {
  if (plan->head_chunks > 1) return false;
  plan->head_chunks = std::max(2u, (model.vocabulary + model.width - 1) / model.width);
  return true;
}

bool prefetch_states(Plan* plan, const Shape& shape) {
  const bool from_memory = plan->optimizer == Place::kHost || plan->optimizer == Place::kPeer;
  if (!from_memory || !shape.stage.is_alone() || (shape.ranks > 1 && shape.zero > 0)) return false;
  const std::vector<Parameter> table = parameter_table(shape.model);
  const std::vector<int> units = units_of(table);
  std::map<int, uint64_t> tiles;  // by unit
  for (size_t i = 0; i < table.size(); ++i)
    if (units[i] >= 0)
      tiles[units[i]] +=
          update_needs(shape.numerics, {table[i].sizes, {{0, int64_t(table[i].elements())}}}, true).tiles;
  uint64_t most = kLeastUpdateSlots;
  for (const auto& [unit, count] : tiles) most = std::max(most, count * 5 / 4);
  plan->just_in_time = true;
  plan->update_slots = static_cast<uint32_t>(most);
  return true;
}

bool update_on_host(Plan* plan, const Shape& shape) {
  Plan there = *plan;
  there.update_on_host = there.just_in_time = true;
  if (!updates_on_host(there, shape)) return false;
  *plan = normalised(there);
  return true;
}

bool tile_layers(Plan* plan, const Shape& shape) {
  constexpr uint64_t kNumbers = 1 << 22;
  if (plan->tiles > 1 || (shape.ranks > 1 && shape.zero >= 2)) return false;
  uint64_t largest = 0;
  for (const Parameter& parameter : parameter_table(shape.model))
    if (parameter.layer >= 0) largest = std::max(largest, parameter.elements());
  Plan tiled = *plan;
  tiled.tiles = static_cast<uint32_t>(std::max<uint64_t>(4, (largest + kNumbers - 1) / kNumbers));
  if (tiles_of(tiled, shape.numerics) == 1) return false;
  *plan = std::move(tiled);
  return true;
}

}  // namespace spillway::trainer
