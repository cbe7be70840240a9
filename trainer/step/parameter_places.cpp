// Where parameters lie, and how they get to where they are used.
#include <algorithm>
#include <span>

#include "trainer/step/parameters.h"

namespace spillway::trainer {
namespace {

// A unit's tensors of one kind for another device: its tensors, and its block where it lives elsewhere.
struct Moved {
  std::optional<LayerBlock> block;
  bool is_zero = false;
  std::vector<at::Tensor> tensors;
};

// Every device reads the memory of the host and of the others; each has a file of its own.
LayerBlock block_on(at::Device device, StreamedLayers* streamed, uint32_t unit, const std::string& name) {
  LayerCache& cache = streamed->cache_of(unit);
  cache.synchronise();
  const LayerBlock& block = cache.block(unit);
  if (block.home().place() != Place::kNvme) return block.on(device, block.shared_home());
  LayerBlock there = block.on(device, streamed->home(name, device, int64_t(block.bytes()), Place::kNvme, {}));
  if (!cache.is_zero(unit)) copy_home(block.home(), there.home());
  return there;
}

Moved moved_to(at::Device device, StreamedLayers* streamed, uint32_t unit, const std::string& name,
               const std::vector<at::Tensor*>& tensors) {
  Moved moved;
  if (streamed->has(unit)) {
    moved.block = block_on(device, streamed, unit, name);
    moved.is_zero = streamed->cache_of(unit).is_zero(unit);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    moved.tensors.push_back(moved.block ? moved.block->tensor(i) : tensors[i]->detach().to(device));
  return moved;
}

void take(Moved* moved, at::Device device, StreamedLayers* streamed, uint32_t unit,
          const std::vector<at::Tensor*>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(moved->tensors[i]);
  if (!moved->block) return;
  streamed->remove(unit);
  streamed->add(unit, device, std::move(*moved->block), moved->is_zero);
}

// A unit's weights and accumulators for another device.
struct MovedUnit {
  uint32_t unit = 0;
  std::vector<at::Tensor*> values, gradients;
  Moved moved_values, moved_gradients;
};

// A rank's share of a unit may be nothing.
bool are_empty(const std::vector<at::Tensor*>& tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor* tensor) { return tensor->numel() == 0; });
}

const char* part_name(Part part) {
  switch (part) {
    case Part::kAttention:
      return "attention";
    case Part::kCrossAttention:
      return "cross-attention";
    case Part::kMlp:
      return "MLP";
  }
  return "?";
}

}  // namespace

std::string Parameters::unit_name(uint32_t unit) const {
  const Parameter& first = table_.at(ranges_.at(unit).first);
  return "layer " + std::to_string(first.layer) + "'s " + part_name(first.part);
}

Parameters::Tensors Parameters::tensors_of_values(const Range& range, bool whole) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    if (tiled_[i]) continue;
    if (is_shared(i) && !whole)
      tensors.push_back(&value_shares_[i]);
    else if (int8_[i].defined())
      tensors.insert(tensors.end(), {&int8_[i].codes, &int8_[i].scales});
    else
      tensors.push_back(&values_[i]);
  }
  return tensors;
}

Parameters::Tensors Parameters::tensors_of_gradients(const Range& range, bool whole) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i)
    if (!tiled_[i]) tensors.push_back(has_shares() && !whole ? &gradient_shares_[i] : &gradients_[i]);
  return tensors;
}

// After their tensors were exchanged.
void Parameters::renew_leaves(const Range& range) {
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    values_[i].requires_grad_(true);
    attach_hook(i);
  }
}

// `are_zero`: whatever they hold.
void Parameters::stream(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors, Place place,
                        const Homes& homes, bool are_zero) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(unit).first];
  LayerBlock block(parts_of(tensors), device, [&](int64_t bytes) {
    return streamed->home(unit_name(unit), device, bytes, place, homes);
  });
  if (!are_zero) {
    const at::Tensor home = block.home().overwrite(nullptr);
    for (size_t i = 0; i < tensors.size(); ++i) copy_now(block.view(home, i), *tensors[i]);
    block.home().written_by(nullptr);
    block.home().settle();
  }
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = block.tensor(i);
  streamed->add(unit, device, std::move(block), are_zero);
}

void Parameters::settle_on_device(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(unit).first];
  LayerCache& cache = streamed->cache_of(unit);
  cache.synchronise();
  const LayerBlock& block = cache.block(unit);
  const bool is_zero = cache.is_zero(unit);
  const at::Tensor home = is_zero ? at::Tensor() : block.home().read(nullptr);
  std::vector<at::Tensor> there;
  there.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    there.push_back(is_zero ? at::zeros(tensors[i]->sizes(), tensors[i]->options())
                            : block.view(home, i).to(device));
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(there[i]);
  streamed->remove(unit);
}

void Parameters::leave_devices(Place values, Place gradients, const Homes& homes) {
  finish_update();
  if (values >= Place::kHost) values_at_ = values;
  if (gradients >= Place::kHost) gradients_at_ = gradients;
  for (const auto& matrix : tiled_)
    if (matrix) matrix->move_home(values_at_, gradients_at_);
  tile_caches_.close_unused_files();
  // False where it was away already, or is to stay.
  const auto leaves = [&](StreamedLayers* streamed, uint32_t unit, const Tensors& tensors, Place place) {
    const at::Device device = devices_[ranges_.at(unit).first];
    if (homes.of(place, device) == device || are_empty(tensors)) return false;
    if (streamed->has(unit)) return streamed->move_to(unit, place, homes, unit_name(unit)), false;
    return stream(streamed, unit, tensors, place, homes, false), true;
  };
  for (const auto& [unit, range] : ranges_) {
    leaves(&streamed_gradients_, unit, tensors_of_gradients(range), gradients);
    if (leaves(&streamed_values_, unit, tensors_of_values(range), values)) renew_leaves(range);
  }
}

void Parameters::come_to_devices(Place values, Place gradients, const Homes& homes) {
  finish_update();
  for (const auto& [unit, range] : ranges_) {
    const at::Device device = devices_[range.first];
    if (homes.of(gradients, device) == device && streamed_gradients_.has(unit))
      settle_on_device(&streamed_gradients_, unit, tensors_of_gradients(range));
    if (homes.of(values, device) != device || !streamed_values_.has(unit)) continue;
    settle_on_device(&streamed_values_, unit, tensors_of_values(range));
    renew_leaves(range);
  }
}

std::vector<std::string> Parameters::remarks() const {
  std::vector<std::string> all;
  for (const StreamedLayers* streamed :
       {&streamed_values_, &streamed_gradients_, &tile_caches_.values, &tile_caches_.gradients})
    for (std::string& remark : streamed->remarks()) all.push_back(std::move(remark));
  return all;
}

// Layers move as a whole: all is made before anything changes.
void Parameters::relocate(size_t first, size_t count, at::Device device) {
  if (devices_[first] == device) return;
  finish_update();
  std::vector<MovedUnit> units;
  std::vector<at::Tensor> stand_ins(count);
  std::vector<TiledMatrix::Homes> homes(count);
  for (size_t i = first; i < first + count; i += ranges_.at(units.back().unit).count) {
    MovedUnit& one = units.emplace_back();
    one.unit = static_cast<uint32_t>(unit_of(i));
    one.values = tensors_of_values(ranges_.at(one.unit));
    one.gradients = tensors_of_gradients(ranges_.at(one.unit));
    const std::string name = unit_name(one.unit);
    one.moved_values = moved_to(device, &streamed_values_, one.unit, name, one.values);
    one.moved_gradients = moved_to(device, &streamed_gradients_, one.unit, name, one.gradients);
  }
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor& value = values_[first + i];
    if (int8_[first + i].defined()) stand_ins[i] = stand_in(value.sizes(), device);
    if (!tiled_[first + i]) continue;
    stand_ins[i] = without_memory(value.sizes(), value.scalar_type(), device);
    homes[i] = tiled_[first + i]->homes_for(device);
  }
  for (MovedUnit& one : units) {
    take(&one.moved_values, device, &streamed_values_, one.unit, one.values);
    take(&one.moved_gradients, device, &streamed_gradients_, one.unit, one.gradients);
  }
  for (size_t i = 0; i < count; ++i) {
    devices_[first + i] = device;
    if (stand_ins[i].defined()) values_[first + i] = std::move(stand_ins[i]);
    if (!tiled_[first + i]) continue;
    tiled_[first + i]->move_to(device, std::move(homes[i]));
    at::Tensor& gradient = gradients_[first + i];
    gradient = without_memory(gradient.sizes(), gradient.scalar_type(), device);
  }
  renew_leaves({first, count});
}

void Parameters::reserve() {
  for (const StreamedLayers* streamed : all_streamed()) streamed->for_each(&LayerCache::reserve);
  tile_caches_.reserve();
}

void Parameters::follow(const std::vector<UnitUse>& uses) {
  // First: also where something fails below, this pass is the one that ranks exchange things of.
  uses_to_come_ = uses;
  uses_done_ = 0;
  wait_for_weights(-1);
  for (const StreamedLayers* streamed : all_streamed()) streamed->for_each(&LayerCache::let_go);
  streamed_values_.follow(units_in(uses, false));
  std::vector<uint32_t> with_gradients(waiting_.begin(), waiting_.end());
  std::erase_if(with_gradients, [this](uint32_t unit) { return updates_at_home(unit); });
  for (const uint32_t unit : units_in(uses, true)) with_gradients.push_back(unit);
  streamed_gradients_.follow(with_gradients);
  follow_tiles(uses);
  if (has_shares()) announce(uses);
}

bool Parameters::Uses::wants(uint32_t unit) const {
  return owner_.used_values().has(unit) || owner_.used_gradients().has(unit) ||
         owner_.waits_for_update(unit) || owner_.coming_.contains(int(unit));
}

void Parameters::Uses::begin(uint32_t unit, Pass pass) {
  using Use = LayerCache::Use;
  if (owner_.has_shares()) owner_.begin_announced(unit, pass);
  owner_.wait_for_weights(int(unit));
  bool is_old = owner_.waits_for_update(unit);
  while (is_old && owner_.waiting_.front() != unit) owner_.update_by_itself(owner_.waiting_.front());
  if (is_old && owner_.updates_at_home(unit)) owner_.update(unit), is_old = false;
  owner_.used_values().begin(unit, is_old ? Use::kWrite : Use::kRead);
  if (is_old) owner_.update(unit);
  if (pass == Pass::kBackward && !owner_.is_summed(int(unit)))
    owner_.used_gradients().begin(unit, LayerCache::Use::kWrite);
}

void Parameters::Uses::end(uint32_t unit, Pass pass) {
  owner_.used_values().end(unit, LayerCache::After::kKept);
  if (pass == Pass::kBackward) {
    owner_.tell_of_leaving(unit);
    owner_.used_gradients().end(unit, LayerCache::After::kKept);
  }
  if (owner_.has_shares()) ++owner_.uses_done_;
}

void Parameters::tell_of_leaving(uint32_t unit) {
  if (!is_last_ || !leaving_call_ || has_shares() || !streamed_gradients_.has(unit)) return;
  const Range& range = ranges_.at(unit);
  const auto is_complete = [this](uint32_t accumulated) { return accumulated == micro_batch_ + 1; };
  if (range.tiles == 1 &&
      std::ranges::all_of(std::span(accumulated_).subspan(range.first, range.count), is_complete))
    leaving_call_(range.first, range.count);
}

void Parameters::expect_new_values() {
  for (const auto& [unit, range] : ranges_) {
    const bool at_home = updates_at_home(unit);
    if ((replaces_ || at_home) && range.tiles == 1 && streamed_values_.has(unit))
      streamed_values_.cache_of(unit).set_stale(unit);
    if (at_home) streamed_gradients_.cache_of(unit).set_stale(unit);
  }
}

bool Parameters::needs_values(Walk kind) {
  return kind == Walk::kReadBoth || kind == Walk::kUpdate;
}

void Parameters::enter(Walk kind, size_t index) {
  const int unit = unit_of(index);
  if (unit < 0 || ranges_.at(uint32_t(unit)).first != index) return;
  if (kind == Walk::kUpdate && updates_at_home(uint32_t(unit))) return open_home(uint32_t(unit));
  using Use = LayerCache::Use;
  streamed_gradients_.begin(uint32_t(unit), kind == Walk::kChangeGradients ? Use::kWrite : Use::kRead);
  if (!needs_values(kind)) return;
  streamed_values_.begin(uint32_t(unit), kind == Walk::kUpdate ? Use::kWrite : Use::kRead);
}

void Parameters::leave(Walk kind, size_t index) {
  using After = LayerCache::After;
  const int unit = unit_of(index);
  if (unit < 0) return;
  const Range& range = ranges_.at(uint32_t(unit));
  if (range.first + range.count != index + 1) return;
  if (open_home_) return close_home(uint32_t(unit));
  streamed_gradients_.end(uint32_t(unit), kind == Walk::kUpdate ? After::kWorthless : After::kKept);
  if (needs_values(kind)) streamed_values_.end(uint32_t(unit), After::kKept);
}

void Parameters::walk(Walk kind, const std::function<void(size_t)>& visit,
                      const std::function<bool(size_t, size_t)>& wanted) {
  std::vector<uint32_t> units;
  units.reserve(ranges_.size());
  for (const auto& [unit, range] : ranges_)
    if (!wanted || wanted(range.first, range.count)) units.push_back(unit);
  if (kind == Walk::kUpdate) expect_new_values();
  streamed_gradients_.follow(units);  // none that is updated at home, which is stale
  if (needs_values(kind)) streamed_values_.follow(units);
  walk_tiles(kind);
  for (size_t i = 0; i < size(); ++i) {
    if (unit_of(i) >= 0 && !std::ranges::binary_search(units, uint32_t(unit_of(i)))) continue;
    enter(kind, i);
    visit(i);
    close_run();
    leave(kind, i);
  }
  tile_caches_.turn();
  if (kind == Walk::kUpdate) forget_gathered();
}

void Parameters::walk_back(Walk kind, const std::function<void(int)>& visit) {
  std::vector<uint32_t> units;
  for (const auto& [unit, range] : ranges_) units.insert(units.begin(), unit);
  streamed_gradients_.follow(units);
  if (needs_values(kind)) streamed_values_.follow(units);
  walk_tiles(kind);
  for (const uint32_t unit : units) {
    const Range& range = ranges_.at(unit);
    enter(kind, range.first);
    visit(int(unit));
    close_run();
    leave(kind, range.first + range.count - 1);
  }
  visit(-1);
  tile_caches_.turn();
}

}  // namespace spillway::trainer
