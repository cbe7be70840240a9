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
  if (updates_at_home(unit)) return update(unit);
  streamed_values_.begin(unit, LayerCache::Use::kWrite);
  update(unit);
  streamed_values_.end(unit, LayerCache::After::kKept);
}

// REQUIRES: it is the first that waits, its block of values is on the device or it is updated at home, and no
// tile is in use.
void Parameters::update(uint32_t unit) {
  const at::NoGradGuard no_grad;
  const Range& range = ranges_.at(unit);
  waiting_.pop_front();
  walk_ = Walk::kUpdate;
  const bool at_home = updates_at_home(unit);
  at_home ? open_home(unit) : streamed_gradients_.begin(unit, LayerCache::Use::kRead);
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
    open_home_.reset();
    throw;
  }
  tile_caches_.values.for_each(&LayerCache::turn);  // other tiles of the same bytes are used next
  at_home ? close_home(unit) : streamed_gradients_.end(unit, LayerCache::After::kWorthless);
  clear(unit);
}

bool Parameters::updates_at_home(uint32_t unit) const {
  const Range& range = ranges_.at(unit);
  if (range.tiles > 1 || !at_home_ || !at_home_(range.first, range.count)) return false;
  const auto is_on_host = [unit](const StreamedLayers& streamed) {
    return streamed.has(unit) && streamed.cache_of(unit).block(unit).home().place() == Place::kHost;
  };
  return is_on_host(streamed_values_) && is_on_host(streamed_gradients_);
}

void Parameters::open_home(uint32_t unit) {
  const at::NoGradGuard no_grad;
  open_home_ = {unit, streamed_values_.cache_of(unit).take_home(unit),
                streamed_gradients_.cache_of(unit).take_home(unit)};
}

// The gradients were scratch.
void Parameters::close_home(uint32_t unit) {
  streamed_gradients_.cache_of(unit).set_zero(unit);
  open_home_.reset();
}

TiledMatrix::Run Parameters::run_at_home(const OpenHome& home, size_t index, int64_t begin,
                                         int64_t length) const {
  const size_t which = index - ranges_.at(home.unit).first;
  const auto part = [&](const LayerCache& cache, const at::Tensor& all) {
    return cache.block(home.unit).view(all, which).view({-1}).narrow(0, begin, length);
  };
  return {.value = part(streamed_values_.cache_of(home.unit), home.values),
          .gradient = part(streamed_gradients_.cache_of(home.unit), home.gradients)};
}

}  // namespace spillway::trainer
