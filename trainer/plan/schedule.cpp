#include "trainer/plan/schedule.h"

#include <algorithm>
#include <utility>

namespace spillway::trainer {
namespace {

// Layers that are computed again together, or one that is by itself: [first, end).
struct Group {
  uint32_t first = 0, end = 0;
};

std::vector<Group> groups_of(const Architecture& model, const Plan& plan) {
  std::vector<Group> groups;
  for (uint32_t layer = 0; layer < model.all_layers();) {
    const uint32_t end = model.is_decoder_layer(layer) ? model.all_layers() : model.layers;
    groups.push_back({layer, plan.segment_end(layer, end)});
    layer = groups.back().end;
  }
  return groups;
}

}  // namespace

std::vector<Part> parts_of_layer(const Architecture& model, uint32_t layer) {
  if (model.is_decoder_layer(layer)) return {Part::kAttention, Part::kCrossAttention, Part::kMlp};
  return {Part::kAttention, Part::kMlp};
}

uint32_t first_unit(const Architecture& model, uint32_t layer) {
  uint32_t unit = 0;
  for (uint32_t before = 0; before < layer; ++before)
    unit += static_cast<uint32_t>(parts_of_layer(model, before).size());
  return unit;
}

std::vector<UnitUse> evaluation_uses(const Architecture& model) {
  std::vector<UnitUse> uses;
  const uint32_t all = first_unit(model, model.all_layers());
  uses.reserve(all);
  for (uint32_t unit = 0; unit < all; ++unit) uses.push_back({unit, false});
  return uses;
}

std::vector<UnitUse> training_uses(const Architecture& model, const Plan& plan) {
  std::vector<UnitUse> uses = evaluation_uses(model);
  const auto forward = [&](uint32_t layer) {
    for (uint32_t unit = first_unit(model, layer); unit < first_unit(model, layer + 1); ++unit)
      uses.push_back({unit, false});
  };
  std::vector<Group> groups = groups_of(model, plan);
  std::ranges::reverse(groups);
  for (const auto& [first, end] : groups) {
    if (end - first > 1)  // the inputs of each come back first
      for (uint32_t layer = first; layer < end; ++layer) forward(layer);
    for (uint32_t layer = end; layer-- > first;) {
      const bool whole = plan.recompute.contains(layer);
      if (whole) forward(layer);
      const std::vector<Part> parts = parts_of_layer(model, layer);
      for (size_t part = parts.size(); part-- > 0;) {
        const uint32_t unit = first_unit(model, layer) + static_cast<uint32_t>(part);
        if (!whole && plan.recomputes(layer, parts[part])) uses.push_back({unit, false});
        uses.push_back({unit, true});
      }
    }
  }
  return uses;
}

std::vector<uint32_t> units_in(const std::vector<UnitUse>& uses, bool backward_alone) {
  std::vector<uint32_t> units;
  for (const UnitUse& use : uses)
    if (use.backward || !backward_alone) units.push_back(use.unit);
  return units;
}

void UseOrder::move_to(uint32_t layer) {
  const size_t all = uses_.size(), from = at_ == all ? 0 : at_ + 1;
  for (size_t i = 0; i < left_from(from); ++i) {
    const size_t at = (from + i) % all;
    if (uses_[at] != layer) continue;
    at_ = at;
    return;
  }
}

std::vector<uint32_t> UseOrder::next(uint32_t count) const {
  const size_t all = uses_.size(), from = at_ == all ? 0 : at_ + 1;
  std::vector<uint32_t> layers;
  for (size_t i = 0; i < left_from(from) && layers.size() < count; ++i) {
    const uint32_t layer = uses_[(from + i) % all];
    const bool is_present = at_ < all && layer == uses_[at_];
    if (!is_present && std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
  }
  return layers;
}

std::vector<uint32_t> copied_layers(const std::vector<uint32_t>& uses, uint32_t slots) {
  std::vector<uint32_t> copied, here, wanted;
  const size_t all = uses.size();
  const auto is_in = [](const std::vector<uint32_t>& layers, uint32_t layer) {
    return std::ranges::find(layers, layer) != layers.end();
  };
  for (int time = 0; time < 2; ++time) {  // the first one begins with empty slots
    copied.clear();
    for (size_t at = 0; at < all; ++at) {
      wanted.clear();  // what is used now, and what comes next, as UseOrder has it
      for (size_t i = 0; i < all && wanted.size() < slots; ++i)
        if (const uint32_t layer = uses[(at + i) % all]; !is_in(wanted, layer)) wanted.push_back(layer);
      for (const uint32_t each : wanted)
        if (!is_in(here, each)) copied.push_back(each);
      std::swap(here, wanted);
    }
  }
  return copied;
}

}  // namespace spillway::trainer
