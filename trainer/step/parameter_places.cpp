// Where parameters lie, and how they get to where they are used.
#include "trainer/step/parameters.h"

namespace spillway::trainer {
namespace {

std::vector<LayerBlock::Part> parts_of(const std::vector<at::Tensor*>& tensors) {
  std::vector<LayerBlock::Part> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor* tensor : tensors) parts.push_back({tensor->sizes().vec(), tensor->scalar_type()});
  return parts;
}

// A unit's tensors of one kind for another device: its tensors, and its block where it lives on the host.
struct Moved {
  std::optional<LayerBlock> block;
  bool is_zero = false;
  std::vector<at::Tensor> tensors;
};

Moved moved_to(at::Device device, const StreamedLayers& streamed, uint32_t unit,
               const std::vector<at::Tensor*>& tensors) {
  Moved moved;
  if (streamed.has(unit)) {
    streamed.cache_of(unit).synchronise();
    moved.block = streamed.cache_of(unit).block(unit).on(device);
    moved.is_zero = streamed.cache_of(unit).is_zero(unit);
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

}  // namespace

bool Parameters::can_stream(const Range& range) const {
  return devices_[range.first].is_cuda();
}

Parameters::Tensors Parameters::tensors_of_values(const Range& range) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    if (tiled_[i]) continue;
    if (int8_[i].defined())
      tensors.insert(tensors.end(), {&int8_[i].codes, &int8_[i].scales});
    else
      tensors.push_back(&values_[i]);
  }
  return tensors;
}

Parameters::Tensors Parameters::tensors_of_gradients(const Range& range) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i)
    if (!tiled_[i]) tensors.push_back(&gradients_[i]);
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
void Parameters::stream(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors, bool are_zero) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(unit).first];
  LayerBlock block(parts_of(tensors), device);
  for (size_t i = 0; i < tensors.size() && !are_zero; ++i) block.host(i).copy_(*tensors[i]);
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = block.tensor(i);
  streamed->add(unit, device, std::move(block), are_zero);
}

void Parameters::settle_on_device(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(unit).first];
  LayerCache& cache = streamed->cache_of(unit);
  cache.synchronise();
  std::vector<at::Tensor> there;
  there.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    there.push_back(cache.is_zero(unit) ? at::zeros(tensors[i]->sizes(), tensors[i]->options())
                                        : cache.block(unit).host(i).to(device));
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(there[i]);
  streamed->remove(unit);
}

void Parameters::move_to_host(bool values, bool gradients) {
  for (const auto& [unit, range] : ranges_) {
    if (!can_stream(range)) continue;
    if (gradients && !streamed_gradients_.has(unit))
      stream(&streamed_gradients_, unit, tensors_of_gradients(range), false);
    if (!values || streamed_values_.has(unit)) continue;
    stream(&streamed_values_, unit, tensors_of_values(range), false);
    renew_leaves(range);
  }
}

void Parameters::move_to_device(bool values, bool gradients) {
  for (const auto& [unit, range] : ranges_) {
    if (gradients && streamed_gradients_.has(unit))
      settle_on_device(&streamed_gradients_, unit, tensors_of_gradients(range));
    if (!values || !streamed_values_.has(unit)) continue;
    settle_on_device(&streamed_values_, unit, tensors_of_values(range));
    renew_leaves(range);
  }
}

// Layers move as a whole: all is made before anything changes.
void Parameters::relocate(size_t first, size_t count, at::Device device) {
  if (devices_[first] == device) return;
  std::vector<MovedUnit> units;
  std::vector<at::Tensor> stand_ins(count);
  for (size_t i = first; i < first + count; i += ranges_.at(units.back().unit).count) {
    MovedUnit& one = units.emplace_back();
    one.unit = static_cast<uint32_t>(unit_of(i));
    one.values = tensors_of_values(ranges_.at(one.unit));
    one.gradients = tensors_of_gradients(ranges_.at(one.unit));
    one.moved_values = moved_to(device, streamed_values_, one.unit, one.values);
    one.moved_gradients = moved_to(device, streamed_gradients_, one.unit, one.gradients);
  }
  for (size_t i = 0; i < count; ++i)
    if (int8_[first + i].defined())
      stand_ins[i] = stand_in(values_[first + i].sizes(), device);
    else if (tiled_[first + i])
      stand_ins[i] = without_memory(values_[first + i].sizes(), values_[first + i].scalar_type(), device);
  for (MovedUnit& one : units) {
    take(&one.moved_values, device, &streamed_values_, one.unit, one.values);
    take(&one.moved_gradients, device, &streamed_gradients_, one.unit, one.gradients);
  }
  for (size_t i = 0; i < count; ++i) {
    devices_[first + i] = device;
    if (tiled_[first + i]) tiled_[first + i]->move_to(device);
    if (stand_ins[i].defined()) values_[first + i] = std::move(stand_ins[i]);
  }
  renew_leaves({first, count});
}

void Parameters::reserve() {
  streamed_values_.for_each(&LayerCache::reserve);
  streamed_gradients_.for_each(&LayerCache::reserve);
  tile_caches_.reserve();
}

void Parameters::follow(const std::vector<UnitUse>& uses) {
  streamed_values_.for_each(&LayerCache::let_go);
  streamed_gradients_.for_each(&LayerCache::let_go);
  streamed_values_.follow(units_in(uses, false));
  streamed_gradients_.follow(units_in(uses, true));
  follow_tiles(uses);
}

bool Parameters::Uses::wants(uint32_t unit) const {
  return owner_.streamed_values_.has(unit) || owner_.streamed_gradients_.has(unit);
}

void Parameters::Uses::begin(uint32_t unit, Pass pass) {
  owner_.streamed_values_.begin(unit, LayerCache::Use::kRead);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.begin(unit, LayerCache::Use::kWrite);
}

void Parameters::Uses::end(uint32_t unit, Pass pass) {
  owner_.streamed_values_.end(unit, LayerCache::After::kKept);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.end(unit, LayerCache::After::kKept);
}

void Parameters::enter(Walk kind, size_t index) const {
  const int unit = unit_of(index);
  if (unit < 0 || ranges_.at(uint32_t(unit)).first != index) return;
  using Use = LayerCache::Use;
  streamed_gradients_.begin(uint32_t(unit), Use::kRead);
  if (kind == Walk::kReadGradients) return;
  streamed_values_.begin(uint32_t(unit), kind == Walk::kUpdate ? Use::kWrite : Use::kRead);
}

void Parameters::leave(Walk kind, size_t index) const {
  using After = LayerCache::After;
  const int unit = unit_of(index);
  if (unit < 0) return;
  const Range& range = ranges_.at(uint32_t(unit));
  if (range.first + range.count != index + 1) return;
  streamed_gradients_.end(uint32_t(unit), kind == Walk::kUpdate ? After::kWorthless : After::kKept);
  if (kind != Walk::kReadGradients) streamed_values_.end(uint32_t(unit), After::kKept);
}

void Parameters::walk(Walk kind, const std::function<void(size_t)>& visit) {
  std::vector<uint32_t> units;
  units.reserve(ranges_.size());
  for (const auto& [unit, range] : ranges_) units.push_back(unit);
  streamed_gradients_.follow(units);
  if (kind != Walk::kReadGradients) streamed_values_.follow(units);
  walk_tiles(kind);
  for (size_t i = 0; i < size(); ++i) {
    enter(kind, i);
    visit(i);
    if (tiled_[i]) tiled_[i]->close();
    leave(kind, i);
  }
  tile_caches_.turn();
}

std::vector<std::pair<const char*, at::Tensor>> Parameters::stored(size_t index) const {
  if (tiled_[index]) return {{"", tiled_[index]->value()}};
  std::vector<at::Tensor> tensors{values_[index]};
  if (const Int8Weight* weight = int8(index)) tensors = {weight->codes, weight->scales};
  const int unit = unit_of(index);
  if (unit >= 0 && streamed_values_.has(uint32_t(unit))) {
    LayerCache& cache = streamed_values_.cache_of(uint32_t(unit));
    cache.synchronise();
    cache.forget();
    const LayerBlock& block = cache.block(uint32_t(unit));
    for (at::Tensor& tensor : tensors)
      for (size_t part = 0; part < block.size(); ++part)
        if (block.tensor(part).is_same(tensor)) {
          tensor = block.host(part);
          break;
        }
  }
  if (int8(index) == nullptr) return {{"", tensors[0]}};
  return {{".codes", tensors[0]}, {".scales", tensors[1]}};
}

}  // namespace spillway::trainer
