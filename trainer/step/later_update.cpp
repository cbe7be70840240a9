// An update that comes to each layer before its next use (Parameters::update_later).
#include <algorithm>

#include "trainer/step/parameters.h"

namespace spillway::trainer {

void Parameters::update_later(LaterUpdate update) {
  finish_update();
  later_ = std::move(update);
  for (const auto& [layer, range] : ranges_) waiting_.push_back(layer);
  for (size_t i = 0; i < size(); ++i)
    if (layer_of(i) < 0) later_.visit(i);
  if (waiting_.empty()) later_.end();
}

bool Parameters::waits_for_update(uint32_t layer) const {
  return std::ranges::find(waiting_, layer) != waiting_.end();
}

void Parameters::finish_update() {
  if (waiting_.empty()) return;
  const std::vector<uint32_t> layers(waiting_.begin(), waiting_.end());
  streamed_values_.follow(layers);
  streamed_gradients_.follow(layers);
  while (!waiting_.empty()) update_by_itself(waiting_.front());
}

void Parameters::update_by_itself(uint32_t layer) {
  streamed_values_.begin(layer, LayerCache::Use::kWrite);
  update(layer);
  streamed_values_.end(layer, LayerCache::After::kKept);
}

// REQUIRES: it is the first that waits, and its values are on the device.
void Parameters::update(uint32_t layer) {
  const at::NoGradGuard no_grad;
  const auto [first, count] = ranges_.at(layer);
  waiting_.pop_front();
  streamed_gradients_.begin(layer, LayerCache::Use::kRead);
  try {
    later_.within([&, first = first, count = count] {
      for (size_t i = first; i < first + count; ++i) later_.visit(i);
      if (waiting_.empty()) later_.end();
    });
  } catch (...) {
    waiting_.clear();  // there is no way on: some parameters are new, and some are not
    throw;
  }
  streamed_gradients_.end(layer, LayerCache::After::kWorthless);
  clear(layer);
}

}  // namespace spillway::trainer
