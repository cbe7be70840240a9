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

// A layer of one kind for another device: its tensors, and its block where it lives on the host.
struct Moved {
  std::optional<LayerBlock> block;
  bool is_zero = false;
  std::vector<at::Tensor> tensors;
};

Moved moved_to(at::Device device, const StreamedLayers& streamed, uint32_t layer,
               const std::vector<at::Tensor*>& tensors) {
  Moved moved;
  if (streamed.has(layer)) {
    streamed.cache_of(layer).synchronise();
    moved.block = streamed.cache_of(layer).block(layer).on(device);
    moved.is_zero = streamed.cache_of(layer).is_zero(layer);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    moved.tensors.push_back(moved.block ? moved.block->tensor(i) : tensors[i]->detach().to(device));
  return moved;
}

void take(Moved* moved, at::Device device, StreamedLayers* streamed, uint32_t layer,
          const std::vector<at::Tensor*>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(moved->tensors[i]);
  if (!moved->block) return;
  streamed->remove(layer);
  streamed->add(layer, device, std::move(*moved->block), moved->is_zero);
}

}  // namespace

Parameters::Tensors Parameters::tensors_of_values(const Range& range) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    if (int8_[i].defined())
      tensors.insert(tensors.end(), {&int8_[i].codes, &int8_[i].scales});
    else
      tensors.push_back(&values_[i]);
  }
  return tensors;
}

Parameters::Tensors Parameters::tensors_of_gradients(const Range& range) {
  Tensors tensors;
  for (size_t i = range.first; i < range.first + range.count; ++i) tensors.push_back(&gradients_[i]);
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
void Parameters::stream(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors, bool are_zero,
                        at::Device home) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(layer).first];
  LayerBlock block(parts_of(tensors), device, home);
  for (size_t i = 0; i < tensors.size() && !are_zero; ++i) copy_now(block.host(i), *tensors[i]);
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = block.tensor(i);
  streamed->add(layer, device, std::move(block), are_zero);
}

void Parameters::change_home(StreamedLayers* streamed, uint32_t layer, at::Device home) const {
  const at::Device device = devices_[ranges_.at(layer).first];
  LayerCache& cache = streamed->cache_of(layer);
  if (cache.block(layer).home() == home) return;
  const at::NoGradGuard no_grad;
  cache.synchronise();
  LayerBlock block = cache.block(layer).at_home(device, home);
  const bool is_zero = cache.is_zero(layer);
  streamed->remove(layer);
  streamed->add(layer, device, std::move(block), is_zero);
}

void Parameters::settle_on_device(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(layer).first];
  LayerCache& cache = streamed->cache_of(layer);
  cache.synchronise();
  std::vector<at::Tensor> there;
  there.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    there.push_back(cache.is_zero(layer) ? at::zeros(tensors[i]->sizes(), tensors[i]->options())
                                         : cache.block(layer).host(i).to(device));
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(there[i]);
  streamed->remove(layer);
}

void Parameters::move_away(Place values, Place gradients, const Homes& homes) {
  // False where it was away already.
  const auto move = [&](StreamedLayers* streamed, uint32_t layer, const Tensors& tensors, at::Device home) {
    if (streamed->has(layer)) return change_home(streamed, layer, home), false;
    return stream(streamed, layer, tensors, false, home), true;
  };
  for (const auto& [layer, range] : ranges_) {
    const at::Device device = devices_[range.first];
    if (const at::Device home = homes.of(gradients, device); home != device)
      move(&streamed_gradients_, layer, tensors_of_gradients(range), home);
    const at::Device home = homes.of(values, device);
    if (home != device && move(&streamed_values_, layer, tensors_of_values(range), home)) renew_leaves(range);
  }
}

void Parameters::move_to_device(Place values, Place gradients, const Homes& homes) {
  for (const auto& [layer, range] : ranges_) {
    const at::Device device = devices_[range.first];
    if (homes.of(gradients, device) == device && streamed_gradients_.has(layer))
      settle_on_device(&streamed_gradients_, layer, tensors_of_gradients(range));
    if (homes.of(values, device) != device || !streamed_values_.has(layer)) continue;
    settle_on_device(&streamed_values_, layer, tensors_of_values(range));
    renew_leaves(range);
  }
}

void Parameters::relocate(size_t first, size_t count, at::Device device) {
  if (devices_[first] == device) return;  // layers move as a whole
  const Range range{first, count};
  const auto layer = static_cast<uint32_t>(layer_of(first));
  const Tensors values = tensors_of_values(range), gradients = tensors_of_gradients(range);
  Moved moved_values = moved_to(device, streamed_values_, layer, values),
        moved_gradients = moved_to(device, streamed_gradients_, layer, gradients);
  std::vector<at::Tensor> stand_ins(count);
  for (size_t i = 0; i < count; ++i)
    if (int8_[first + i].defined()) stand_ins[i] = stand_in(values_[first + i].sizes(), device);
  take(&moved_values, device, &streamed_values_, layer, values);
  take(&moved_gradients, device, &streamed_gradients_, layer, gradients);
  for (size_t i = 0; i < count; ++i) {
    devices_[first + i] = device;
    if (stand_ins[i].defined()) values_[first + i] = std::move(stand_ins[i]);
  }
  renew_leaves(range);
}

void Parameters::reserve() {
  streamed_values_.for_each(&LayerCache::reserve);
  streamed_gradients_.for_each(&LayerCache::reserve);
}

void Parameters::follow(const std::vector<LayerUse>& uses) {
  streamed_values_.for_each(&LayerCache::let_go);
  streamed_gradients_.for_each(&LayerCache::let_go);
  streamed_values_.follow(layers_of(uses, false));
  streamed_gradients_.follow(layers_of(uses, true));
}

bool Parameters::Uses::wants(uint32_t layer) const {
  return owner_.streamed_values_.has(layer) || owner_.streamed_gradients_.has(layer);
}

void Parameters::Uses::begin(uint32_t layer, Pass pass) {
  owner_.streamed_values_.begin(layer, LayerCache::Use::kRead);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.begin(layer, LayerCache::Use::kWrite);
}

void Parameters::Uses::end(uint32_t layer, Pass pass) {
  owner_.streamed_values_.end(layer, LayerCache::After::kKept);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.end(layer, LayerCache::After::kKept);
}

void Parameters::enter(Walk kind, size_t index) const {
  const int layer = layer_of(index);
  if (layer < 0 || ranges_.at(uint32_t(layer)).first != index) return;
  using Use = LayerCache::Use;
  streamed_gradients_.begin(uint32_t(layer), Use::kRead);
  if (kind == Walk::kReadGradients) return;
  streamed_values_.begin(uint32_t(layer), kind == Walk::kUpdate ? Use::kWrite : Use::kRead);
}

void Parameters::leave(Walk kind, size_t index) const {
  using After = LayerCache::After;
  const int layer = layer_of(index);
  if (layer < 0) return;
  const Range& range = ranges_.at(uint32_t(layer));
  if (range.first + range.count != index + 1) return;
  streamed_gradients_.end(uint32_t(layer), kind == Walk::kUpdate ? After::kWorthless : After::kKept);
  if (kind != Walk::kReadGradients) streamed_values_.end(uint32_t(layer), After::kKept);
}

void Parameters::walk(Walk kind, const std::function<void(size_t)>& visit) {
  std::vector<uint32_t> layers;
  layers.reserve(ranges_.size());
  for (const auto& [layer, range] : ranges_) layers.push_back(layer);
  streamed_gradients_.follow(layers);
  if (kind != Walk::kReadGradients) streamed_values_.follow(layers);
  for (size_t i = 0; i < size(); ++i) {
    enter(kind, i);
    visit(i);
    leave(kind, i);
  }
}

std::vector<std::pair<const char*, at::Tensor>> Parameters::stored(size_t index) const {
  std::vector<at::Tensor> tensors{values_[index]};
  if (const Int8Weight* weight = int8(index)) tensors = {weight->codes, weight->scales};
  const int layer = layer_of(index);
  if (layer >= 0 && streamed_values_.has(uint32_t(layer))) {
    LayerCache& cache = streamed_values_.cache_of(uint32_t(layer));
    cache.synchronise();
    cache.forget();
    const LayerBlock& block = cache.block(uint32_t(layer));
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
