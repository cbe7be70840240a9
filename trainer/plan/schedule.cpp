#include "trainer/plan/schedule.h"

#include <algorithm>
#include <set>

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

std::vector<LayerUse> evaluation_uses(const Architecture& model) {
  std::vector<LayerUse> uses;
  for (uint32_t layer = 0; layer < model.all_layers(); ++layer) uses.push_back({layer, false});
  return uses;
}

std::vector<LayerUse> training_uses(const Architecture& model, const Plan& plan) {
  std::vector<LayerUse> uses = evaluation_uses(model);
  std::vector<Group> groups = groups_of(model, plan);
  std::ranges::reverse(groups);
  for (const auto& [first, end] : groups) {
    if (end - first > 1)  // the inputs of each come back first
      for (uint32_t layer = first; layer < end; ++layer) uses.push_back({layer, false});
    for (uint32_t layer = end; layer-- > first;) uses.push_back({layer, true});
  }
  return uses;
}

std::vector<uint32_t> layers_of(const std::vector<LayerUse>& uses, bool backward_alone) {
  std::vector<uint32_t> layers;
  for (const LayerUse& use : uses)
    if (use.backward || !backward_alone) layers.push_back(use.layer);
  return layers;
}

void UseOrder::move_to(uint32_t layer) {
  const size_t all = uses_.size(), from = at_ == all ? 0 : at_ + 1;
  for (size_t i = 0; i < all; ++i) {
    const size_t at = (from + i) % all;
    if (uses_[at] != layer) continue;
    at_ = at;
    return;
  }
}

std::vector<uint32_t> UseOrder::next(uint32_t count) const {
  const size_t all = uses_.size(), from = at_ == all ? 0 : at_ + 1;
  std::vector<uint32_t> layers;
  for (size_t i = 0; i < all && layers.size() < count; ++i) {
    const uint32_t layer = uses_[(from + i) % all];
    const bool is_present = at_ < all && layer == uses_[at_];
    if (!is_present && std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
  }
  return layers;
}

std::vector<uint32_t> copied_layers(const std::vector<uint32_t>& uses, uint32_t slots) {
  std::vector<uint32_t> copied;
  std::set<uint32_t> here;
  UseOrder order(uses);
  for (int time = 0; time < 2; ++time) {  // the first one begins with empty slots
    copied.clear();
    for (const uint32_t layer : uses) {
      order.move_to(layer);
      std::vector<uint32_t> wanted = order.next(slots - 1);
      wanted.insert(wanted.begin(), layer);
      for (const uint32_t each : wanted)
        if (!here.contains(each)) copied.push_back(each);
      here = {wanted.begin(), wanted.end()};
    }
  }
  return copied;
}

}  // namespace spillway::trainer
