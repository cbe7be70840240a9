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

// A layer of one kind for another device: its tensors, and its block where it lives elsewhere.
struct Moved {
  std::optional<LayerBlock> block;
  bool is_zero = false;
  std::vector<at::Tensor> tensors;
};

// Every device reads the memory of the host and of the others; each has a file of its own.
LayerBlock block_on(at::Device device, StreamedLayers* streamed, uint32_t layer) {
  LayerCache& cache = streamed->cache_of(layer);
  cache.synchronise();
  const LayerBlock& block = cache.block(layer);
  if (block.home().place() != Place::kNvme) return block.on(device, block.shared_home());
  LayerBlock there =
      block.on(device, streamed->home(layer, device, int64_t(block.bytes()), Place::kNvme, {}));
  if (!cache.is_zero(layer)) copy_home(block.home(), there.home());
  return there;
}

Moved moved_to(at::Device device, StreamedLayers* streamed, uint32_t layer,
               const std::vector<at::Tensor*>& tensors) {
  Moved moved;
  if (streamed->has(layer)) {
    moved.block = block_on(device, streamed, layer);
    moved.is_zero = streamed->cache_of(layer).is_zero(layer);
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
void Parameters::stream(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors, Place place,
                        const Homes& homes, bool are_zero) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(layer).first];
  LayerBlock block(parts_of(tensors), device,
                   [&](int64_t bytes) { return streamed->home(layer, device, bytes, place, homes); });
  if (!are_zero) {
    const at::Tensor home = block.home().overwrite(nullptr);
    for (size_t i = 0; i < tensors.size(); ++i) copy_now(block.view(home, i), *tensors[i]);
    block.home().written_by(nullptr);
    block.home().settle();
  }
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = block.tensor(i);
  streamed->add(layer, device, std::move(block), are_zero);
}

void Parameters::settle_on_device(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[ranges_.at(layer).first];
  LayerCache& cache = streamed->cache_of(layer);
  cache.synchronise();
  const LayerBlock& block = cache.block(layer);
  const bool is_zero = cache.is_zero(layer);
  const at::Tensor home = is_zero ? at::Tensor() : block.home().read(nullptr);
  std::vector<at::Tensor> there;
  there.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    there.push_back(is_zero ? at::zeros(tensors[i]->sizes(), tensors[i]->options())
                            : block.view(home, i).to(device));
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = std::move(there[i]);
  streamed->remove(layer);
}

void Parameters::leave_devices(Place values, Place gradients, const Homes& homes) {
  finish_update();
  // False where it was away already, or is to stay.
  const auto leaves = [&](StreamedLayers* streamed, uint32_t layer, const Tensors& tensors, Place place) {
    const at::Device device = devices_[ranges_.at(layer).first];
    if (homes.of(place, device) == device) return false;
    if (streamed->has(layer)) return streamed->move_to(layer, place, homes), false;
    return stream(streamed, layer, tensors, place, homes, false), true;
  };
  for (const auto& [layer, range] : ranges_) {
    leaves(&streamed_gradients_, layer, tensors_of_gradients(range), gradients);
    if (leaves(&streamed_values_, layer, tensors_of_values(range), values)) renew_leaves(range);
  }
}

void Parameters::come_to_devices(Place values, Place gradients, const Homes& homes) {
  finish_update();
  for (const auto& [layer, range] : ranges_) {
    const at::Device device = devices_[range.first];
    if (homes.of(gradients, device) == device && streamed_gradients_.has(layer))
      settle_on_device(&streamed_gradients_, layer, tensors_of_gradients(range));
    if (homes.of(values, device) != device || !streamed_values_.has(layer)) continue;
    settle_on_device(&streamed_values_, layer, tensors_of_values(range));
    renew_leaves(range);
  }
}

std::vector<std::string> Parameters::remarks() const {
  std::vector<std::string> all = streamed_values_.remarks();
  for (std::string& remark : streamed_gradients_.remarks()) all.push_back(std::move(remark));
  return all;
}

void Parameters::relocate(size_t first, size_t count, at::Device device) {
  if (devices_[first] == device) return;  // layers move as a whole
  finish_update();
  const Range range{first, count};
  const auto layer = static_cast<uint32_t>(layer_of(first));
  const Tensors values = tensors_of_values(range), gradients = tensors_of_gradients(range);
  Moved moved_values = moved_to(device, &streamed_values_, layer, values),
        moved_gradients = moved_to(device, &streamed_gradients_, layer, gradients);
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
  std::vector<uint32_t> with_gradients(waiting_.begin(), waiting_.end());
  for (const uint32_t layer : layers_of(uses, true)) with_gradients.push_back(layer);
  streamed_gradients_.follow(with_gradients);
}

bool Parameters::Uses::wants(uint32_t layer) const {
  return owner_.streamed_values_.has(layer) || owner_.streamed_gradients_.has(layer) ||
         owner_.waits_for_update(layer);
}

void Parameters::Uses::begin(uint32_t layer, Pass pass) {
  using Use = LayerCache::Use;
  const bool is_old = owner_.waits_for_update(layer);
  while (is_old && owner_.waiting_.front() != layer) owner_.update_by_itself(owner_.waiting_.front());
  owner_.streamed_values_.begin(layer, is_old ? Use::kWrite : Use::kRead);
  if (is_old) owner_.update(layer);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.begin(layer, LayerCache::Use::kWrite);
}

void Parameters::Uses::end(uint32_t layer, Pass pass) {
  owner_.streamed_values_.end(layer, LayerCache::After::kKept);
  if (pass == Pass::kBackward) owner_.streamed_gradients_.end(layer, LayerCache::After::kKept);
}

bool Parameters::needs_values(Walk kind) {
  return kind == Walk::kReadBoth || kind == Walk::kUpdate;
}

void Parameters::enter(Walk kind, size_t index) const {
  const int layer = layer_of(index);
  if (layer < 0 || ranges_.at(uint32_t(layer)).first != index) return;
  using Use = LayerCache::Use;
  streamed_gradients_.begin(uint32_t(layer), kind == Walk::kChangeGradients ? Use::kWrite : Use::kRead);
  if (!needs_values(kind)) return;
  streamed_values_.begin(uint32_t(layer), kind == Walk::kUpdate ? Use::kWrite : Use::kRead);
}

void Parameters::leave(Walk kind, size_t index) const {
  using After = LayerCache::After;
  const int layer = layer_of(index);
  if (layer < 0) return;
  const Range& range = ranges_.at(uint32_t(layer));
  if (range.first + range.count != index + 1) return;
  streamed_gradients_.end(uint32_t(layer), kind == Walk::kUpdate ? After::kWorthless : After::kKept);
  if (needs_values(kind)) streamed_values_.end(uint32_t(layer), After::kKept);
}

void Parameters::walk(Walk kind, const std::function<void(size_t)>& visit) {
  std::vector<uint32_t> layers;
  layers.reserve(ranges_.size());
  for (const auto& [layer, range] : ranges_) layers.push_back(layer);
  streamed_gradients_.follow(layers);
  if (needs_values(kind)) streamed_values_.follow(layers);
  for (size_t i = 0; i < size(); ++i) {
    enter(kind, i);
    visit(i);
    leave(kind, i);
  }
}

void Parameters::walk_back(Walk kind, const std::function<void(int)>& visit) {
  std::vector<uint32_t> layers;
  for (const auto& [layer, range] : ranges_) layers.insert(layers.begin(), layer);
  streamed_gradients_.follow(layers);
  if (needs_values(kind)) streamed_values_.follow(layers);
  for (const uint32_t layer : layers) {
    const auto [first, count] = ranges_.at(layer);
    enter(kind, first);
    visit(int(layer));
    leave(kind, first + count - 1);
  }
  visit(-1);
}

std::vector<at::Tensor> Parameters::rows_of(size_t index, const Span& span) const {
  const Int8Weight* weight = int8(index);
  if (weight == nullptr) return {values_[index].detach().view({-1}).narrow(0, span.begin, span.length)};
  const int64_t columns = weight->codes.size(1), first = span.begin / columns, rows = span.length / columns;
  return {weight->codes.narrow(0, first, rows), weight->scales.narrow(0, first, rows)};
}

std::vector<const at::Tensor*> Parameters::tensors_of(size_t index) const {
  const Int8Weight* weight = int8(index);
  if (weight != nullptr) return {&weight->codes, &weight->scales};
  return {&values_[index]};
}

std::vector<Parameters::Stored> Parameters::stored(size_t index) const {
  const std::vector<const at::Tensor*> tensors = tensors_of(index);
  std::vector<Stored> all;
  all.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    all.push_back({tensors.size() == 1 ? ""
                   : i == 0            ? ".codes"
                                       : ".scales",
                   tensors[i]->sizes().vec(), tensors[i]->scalar_type()});
  return all;
}

void Parameters::visit_stored(size_t index, size_t which, bool writes,
                              const std::function<void(const at::Tensor&)>& visit) const {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = *tensors_of(index)[which];
  const int layer = layer_of(index);
  if (layer < 0 || !streamed_values_.has(uint32_t(layer))) return visit(tensor.detach());
  LayerCache& cache = streamed_values_.cache_of(uint32_t(layer));
  cache.synchronise();
  if (writes) cache.forget();
  const LayerBlock& block = cache.block(uint32_t(layer));
  size_t part = 0;
  while (!block.tensor(part).is_same(tensor)) ++part;
  visit(block.view(block.home().read(nullptr), part));
  if (writes) block.home().written_by(nullptr);
}

at::Tensor Parameters::read_stored(size_t index, size_t which) {
  finish_update();
  at::Tensor values;
  visit_stored(index, which, false,
               [&](const at::Tensor& tensor) { values = tensor.is_cuda() ? tensor.cpu() : tensor.clone(); });
  return values;
}

void Parameters::write_stored(size_t index, size_t which, const at::Tensor& values) {
  finish_update();
  visit_stored(index, which, true, [&](const at::Tensor& tensor) { copy_now(tensor, values); });
}

}  // namespace spillway::trainer
