#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trainer/optimizer/device_key.h"
#include "trainer/optimizer/learning_rate.h"

namespace spillway::trainer {
namespace {

at::Device place_of(Place place, const at::Tensor& parameter) {
  return place == Place::kHost ? at::Device(at::kCPU) : parameter.device();
}

int64_t entries_of(int64_t elements, const StateTensor& shape) {
  return (elements + shape.elements_per_entry - 1) / shape.elements_per_entry;
}

at::ScalarType type_of(const StateTensor& shape) {
  return shape.is_codes ? at::kByte : at::kFloat;
}

// The part of a state that belongs to a tile.
at::Tensor part_of(const at::Tensor& state, const StateTensor& shape, int64_t begin, int64_t length) {
  return state.view({-1}).narrow(0, begin / shape.elements_per_entry, entries_of(length, shape));
}

bool is_tiled(const StateTensor& shape) {
  return shape.elements_per_entry > 0;
}

}  // namespace

Optimizer::Optimizer(Parameters& parameters, const TrainConfig& train, Place place,
                     const InitialValues& initial)
    : parameters_(parameters),
      train_(train),
      rule_(update_rule(train, parameters.size())),
      rounding_(train.seed) {
  for (size_t i = 0; i < parameters.size(); ++i) add_entry(i, place, initial);
  prepare_scratch();
}

void Optimizer::add_entry(size_t index, Place place, const InitialValues& initial) {
  const std::vector<int64_t> sizes = parameters_.value(index).sizes().vec();
  Entry entry{.shapes = optimizer_state(train_.numerics, sizes),
              .tensors = {},
              .tile = tile_elements(train_.numerics, sizes, place == Place::kHost),
              .on_host = place == Place::kHost};
  const at::Device device = place_of(place, parameters_.value(index));
  for (const StateTensor& shape : entry.shapes)
    entry.tensors.push_back(shape.name == "master"
                                ? initial[index].to(device, at::kFloat, false, true)
                                : at::zeros(shape.sizes, at::device(device).dtype(type_of(shape))));
  entries_.push_back(std::move(entry));
}

// The tensors that a device needs for updates of its parameters, as large as the largest of them wants them.
Optimizer::Needs Optimizer::needs_of(int device) const {
  Needs needs;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (device_key(parameters_.value(i)) != device) continue;
    const auto need = [&](const std::string& name, int64_t elements, at::ScalarType type) {
      Need& of = needs[name];
      of = {std::max(of.elements, elements), type};
    };
    for (const StateTensor& shape : entry.shapes)
      if (entry.on_host && is_tiled(shape)) need(shape.name, entries_of(entry.tile, shape), type_of(shape));
    if (!train_.numerics.rounds_stochastically()) continue;
    need("value", entry.tile, at::kFloat), need("gradient", entry.tile, at::kFloat);
    need("bits", entry.tile, at::kInt);
  }
  return needs;
}

void Optimizer::prepare_scratch() {
  struct Most {
    at::Device device;
    int64_t tile = 0, rows = 0;  // of a tile; rows of matrices in 8 bits
  };
  std::map<int, Most> largest;  // by device
  for (size_t i = 0; i < entries_.size(); ++i) {
    const at::Tensor& value = parameters_.value(i);
    Most& most = largest.try_emplace(device_key(value), Most{value.device()}).first->second;
    most.tile = std::max(most.tile, entries_[i].tile);
    if (parameters_.int8(i)) most.rows = std::max(most.rows, entries_[i].tile / value.size(1));
  }
  std::erase_if(scratch_, [&](const auto& of) { return !largest.contains(of.first); });
  for (const auto& [key, of] : largest) {
    const auto& [device, tile, rows] = of;
    fit(needs_of(key), device, &scratch_[key]);
    rule_->reserve(device, tile);
    if (train_.numerics.rounds_stochastically()) rounding_.reserve(device);
    if (rows > 0) int8_rounding_.reserve(device, rows);
  }
}

void Optimizer::fit(const Needs& needs, at::Device device, Scratch* scratch) {
  std::erase_if(*scratch, [&](const auto& of) { return !needs.contains(of.first); });
  for (const auto& [name, need] : needs)
    if (!scratch->contains(name) || scratch->at(name).numel() != need.elements)
      (*scratch)[name] = at::empty({need.elements}, at::device(device).dtype(need.type));
}

Updated Optimizer::updated(size_t index) const {
  return {index, [this, index] { return numbers(index); }, parameters_.gradient(index),
          &entries_[index].tensors};
}

void Optimizer::measure_norm(double loss_scale) {
  std::vector<at::Tensor> norms;
  norms.reserve(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i)
    norms.push_back(at::linalg_vector_norm(parameters_.gradient(i).view({-1}), 2, {}, false, at::kFloat));
  double squares = 0;  // in the order of the parameters, on the host: the same wherever the layers lie
  for (const at::Tensor& norm : norms) {
    const double value = norm.item().toDouble();
    squares += value * value;
  }
  norm_ = std::sqrt(squares) / loss_scale;
}

void Optimizer::prepare(uint64_t step, double loss_scale) {
  const at::NoGradGuard no_grad;
  prepare_scratch();
  measure_norm(loss_scale);
  const double clip = train_.clip > 0 && norm_ > train_.clip ? train_.clip / (norm_ + 1e-6) : 1;
  update_ = {.number = updates_ + 1, .rate = learning_rate(train_, step), .scale = clip / loss_scale};
  for (size_t i = 0; i < entries_.size(); ++i) rule_->prepare(update_, updated(i));
}

bool Optimizer::commit() {
  if (train_.numerics.precision == Precision::kFp16Mixed && !std::isfinite(norm_)) return false;
  const at::NoGradGuard no_grad;
  scale_ = update_.scale;
  rule_->begin(update_);
  for (size_t i = 0; i < entries_.size(); ++i) update(i);
  ++updates_;
  return true;
}

void Optimizer::update(size_t index) {
  const int64_t elements = parameters_.value(index).numel(), tile = entries_[index].tile;
  for (int64_t begin = 0; begin < elements; begin += tile)
    update_tile(index, begin, std::min(tile, elements - begin));
  rule_->finish(updated(index));
}

at::Tensor Optimizer::in_floats(Scratch& scratch, const char* name, const at::Tensor& tile) const {
  if (tile.scalar_type() == at::kFloat) return tile;
  return scratch.at(name).narrow(0, 0, tile.numel()).copy_(tile);
}

void Optimizer::update_tile(size_t index, int64_t begin, int64_t length) {
  const Entry& entry = entries_[index];
  const at::Tensor gradient = parameters_.gradient(index).view({-1}).narrow(0, begin, length);
  Scratch& scratch = scratch_[device_key(gradient)];
  Tile tile{.parameter = index,
            .begin = begin,
            .value = {},
            .gradient = in_floats(scratch, "gradient", gradient),
            .states = {},
            .decays = parameters_.value(index).dim() >= 2};  // norms and biases do not
  for (size_t i = 0; i < entry.shapes.size(); ++i) {
    if (!is_tiled(entry.shapes[i])) continue;
    at::Tensor part = part_of(entry.tensors[i], entry.shapes[i], begin, length);
    if (entry.on_host) part = scratch.at(entry.shapes[i].name).narrow(0, 0, part.numel()).copy_(part);
    tile.states.push_back(std::move(part));
  }
  const std::vector<at::Tensor> all = tile.states;  // the master among them
  if (train_.numerics.has_master_weights()) {
    tile.value = tile.states.front();
    tile.states.erase(tile.states.begin());
  } else {
    tile.value = read(index, begin, length);
  }
  if (update_.scale != 1) tile.gradient.mul_(scale_);
  rule_->apply(tile);
  store(tile);
  for (size_t i = 0, read = 0; entry.on_host && i < entry.shapes.size(); ++i)
    if (is_tiled(entry.shapes[i]))
      part_of(entry.tensors[i], entry.shapes[i], begin, length).copy_(all[read++]);
}

Int8Weight Optimizer::rows_of(size_t index, int64_t begin, int64_t length) const {
  const Int8Weight& weight = *parameters_.int8(index);
  const int64_t columns = weight.codes.size(1);
  return {weight.codes.narrow(0, begin / columns, length / columns),
          weight.scales.narrow(0, begin / columns, length / columns)};
}

at::Tensor Optimizer::read(size_t index, int64_t begin, int64_t length) {
  const at::Tensor& value = parameters_.value(index);
  Scratch& scratch = scratch_[device_key(value)];
  if (!parameters_.int8(index))
    return in_floats(scratch, "value", value.detach().view({-1}).narrow(0, begin, length));
  at::Tensor floats = scratch.at("value").narrow(0, 0, length);
  int8_rounding_.read(rows_of(index, begin, length), floats);
  return floats;
}

void Optimizer::store(const Tile& tile) {
  if (!train_.numerics.has_master_weights() && !train_.numerics.rounds_stochastically())
    return;  // it is in place
  const at::Tensor& parameter = parameters_.value(tile.parameter);
  const int64_t length = tile.value.numel();
  const StochasticRounding::Key key{update_.number, tile.parameter, static_cast<uint64_t>(tile.begin)};
  const auto bits = [&] { return scratch_.at(device_key(parameter)).at("bits").narrow(0, 0, length); };
  if (parameters_.int8(tile.parameter)) {
    const at::Tensor chances = bits().view(at::kFloat);
    rounding_.draw(chances, key);
    int8_rounding_.round(tile.value, tile.gradient, chances, rows_of(tile.parameter, tile.begin, length));
    return;
  }
  const at::Tensor value = parameter.detach().view({-1}).narrow(0, tile.begin, length);
  if (train_.numerics.has_master_weights())
    value.copy_(tile.value);
  else
    rounding_.round(tile.value, bits(), value, key);
}

void Optimizer::move_to(Place place) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    std::vector<at::Tensor> moved;
    moved.reserve(entry.tensors.size());
    for (const at::Tensor& tensor : entry.tensors)
      moved.push_back(tensor.to(place_of(place, parameters_.value(i))));
    entry.tensors = std::move(moved);
    entry.on_host = place == Place::kHost;
    entry.tile = tile_elements(train_.numerics, parameters_.value(i).sizes().vec(), entry.on_host);
  }
  prepare_scratch();
}

void Optimizer::relocate(size_t first, size_t count, at::Device device) {
  for (size_t i = first; i < first + count; ++i) {
    if (entries_[i].on_host) continue;
    std::vector<at::Tensor> moved;
    moved.reserve(entries_[i].tensors.size());
    for (const at::Tensor& tensor : entries_[i].tensors) moved.push_back(tensor.to(device));
    entries_[i].tensors = std::move(moved);
  }
}

at::Tensor Optimizer::numbers(size_t index) const {
  const Int8Weight* int8 = parameters_.int8(index);
  return int8 ? numbers_of(*int8, at::kFloat) : parameters_.value(index).detach();
}

at::Tensor Optimizer::weights(size_t index) const {
  if (train_.numerics.has_master_weights()) return entries_[index].tensors.front();
  const Int8Weight* int8 = parameters_.int8(index);
  if (int8 == nullptr) return parameters_.value(index);
  return numbers_of({int8->codes.cpu(), int8->scales.cpu()}, at::kFloat);
}

}  // namespace spillway::trainer
