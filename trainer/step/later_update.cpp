// An update that comes to each unit before its next use (Parameters::update_later), or whose weights do.
#include <algorithm>

#include "trainer/step/parameters.h"

namespace spillway::trainer {

void Parameters::update_later(LaterUpdate update) {
  finish_update();
  later_ = std::move(update);
  walk_ = Walk::kUpdate;
  expect_new_values();
  for (const auto& [unit, range] : ranges_) waiting_.push_back(unit);
  for (size_t i = 0; i < size(); ++i)
    if (unit_of(i) < 0) later_.visit(i);
  if (waiting_.empty()) later_.end();
}

bool Parameters::waits_for_update(uint32_t unit) const {
  return std::ranges::find(waiting_, unit) != waiting_.end();
}

void Parameters::wait_for_weights(int unit) {
  const auto found = coming_.find(unit);
  if (found == coming_.end()) return;
  compute_after(found->second, unit < 0 ? devices_.front() : devices_[ranges_.at(uint32_t(unit)).first]);
  coming_.erase(found);
}

void Parameters::finish_update() {
  while (!coming_.empty()) wait_for_weights(coming_.begin()->first);
  if (waiting_.empty()) return;
  const std::vector<uint32_t> units(waiting_.begin(), waiting_.end());
  streamed_values_.follow(units);
  streamed_gradients_.follow(units);
  follow_tiles({});
  while (!waiting_.empty()) update_by_itself(waiting_.front());
}

void Parameters::update_by_itself(uint32_t unit) {
  streamed_values_.begin(unit, LayerCache::Use::kWrite);
  update(unit);
  streamed_values_.end(unit, LayerCache::After::kKept);
}

// REQUIRES: it is the first that waits, its block of values is on the device, and no tile is in use.
void Parameters::update(uint32_t unit) {
  const at::NoGradGuard no_grad;
  const Range& range = ranges_.at(unit);
  waiting_.pop_front();
  walk_ = Walk::kUpdate;
  streamed_gradients_.begin(unit, LayerCache::Use::kRead);
  try {
    later_.within([&] {
      for (size_t i = range.first; i < range.first + range.count; ++i) {
        later_.visit(i);
        close_run();
      }
      if (waiting_.empty()) later_.end();
    });
  } catch (...) {
    waiting_.clear();  // there is no way on: some parameters are new, and some are not
    throw;
  }
  tile_caches_.values.for_each(&LayerCache::turn);  // other tiles of the same bytes are used next
  streamed_gradients_.end(unit, LayerCache::After::kWorthless);
  clear(unit);
}

}  // namespace spillway::trainer
