#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <span>

#include "trainer/optimizer/device_key.h"
#include "trainer/optimizer/learning_rate.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {

Optimizer::Optimizer(Parameters& parameters, const TrainConfig& train, Place place,
                     const InitialValues& initial, NvmeFolder folder, const Homes& homes, UpdateShare share)
    : parameters_(parameters),
      train_(train),
      share_(std::move(share)),
      states_(parameters, train.numerics, place, homes, initial, std::move(folder), share_.updated),
      tiles_(home()),
      rule_(update_rule(train, parameters.size())),
      rounding_(train.seed),
      norms_(parameters.size()) {
  prepare_scratch();
  parameters.update_at_home([this](size_t first, size_t count) {
    const auto is_on_host = [this](size_t i) { return states_.of(i).place == Place::kHost; };
    return on_host_ && std::ranges::all_of(std::views::iota(first, first + count), is_on_host);
  });
  parameters.replace_in_updates(has_masters() && share_.updated.empty());
  if (share_.over_ranks) return;  // several ranks measure after their exchange
  parameters.on_leaving([this](size_t first, size_t count) {
    const at::NoGradGuard no_grad;
    for (size_t i = first; i < first + count; ++i)
      if (norms_[i].empty()) measure(i);
  });
}

namespace {

// Where a kernel would round a whole parameter, operators go through it in tiles.
int64_t at_once_by_operators(const Numerics& numerics, int64_t tile) {
  return rounds_at_once(numerics) ? std::min(kTileElements, tile) : tile;
}

}  // namespace

// The tensors that a device needs for updates of its parameters, as large as the largest of them wants them.
Optimizer::Needs Optimizer::needs_of(int device) const {
  Needs needs;
  if (!train_.numerics.rounds_stochastically()) return needs;
  for (size_t i = 0; i < states_.size(); ++i) {
    const at::Tensor& value = parameters_.value(i);
    if (device_key(value) != device) continue;
    if (train_.numerics.precision != Precision::kInt8 && rule_->works_at_once(value.device())) continue;
    const auto need = [&](const std::string& name, at::ScalarType type) {
      Need& of = needs[name];
      of = {std::max(of.elements, at_once_by_operators(train_.numerics, states_.of(i).tile)), type};
    };
    need("value", at::kFloat), need("gradient", at::kFloat), need("bits", at::kInt);
  }
  return needs;
}

void Optimizer::prepare_scratch() {
  struct Most {
    at::Device device;
    int64_t tile = 0, rows = 0;  // of a tile; rows of matrices in 8 bits
  };
  std::map<int, Most> largest;  // by device
  for (size_t i = 0; i < states_.size(); ++i) {
    const at::Tensor& value = parameters_.value(i);
    const int64_t tile = states_.of(i).tile;
    Most& most = largest.try_emplace(device_key(value), Most{value.device()}).first->second;
    most.tile = std::max(most.tile, tile);
    if (parameters_.int8(i)) most.rows = std::max(most.rows, tile / value.size(1));
  }
  std::erase_if(scratch_, [&](const auto& of) { return !largest.contains(of.first); });
  for (const auto& [key, of] : largest) {
    const auto& [device, tile, rows] = of;
    rule_->reserve(device, tile);
    const Needs needs = needs_of(key);
    fit(needs, device, &scratch_[key]);
    if (!needs.empty()) rounding_.reserve(device);
    if (rows > 0) int8_rounding_.reserve(device, rows);
  }
  tiles_.prepare(schedule(), slots_);
}

void Optimizer::fit(const Needs& needs, at::Device device, Scratch* scratch) {
  std::erase_if(*scratch, [&](const auto& of) { return !needs.contains(of.first); });
  for (const auto& [name, need] : needs)
    if (!scratch->contains(name) || scratch->at(name).numel() != need.elements)
      (*scratch)[name] = at::empty({need.elements}, at::device(device).dtype(need.type));
}

Updated Optimizer::updated(size_t index) const {
  return {index, [this, index] { return numbers(index); }, parameters_.gradient(index),
          &states_.of(index).tensors};
}

// Of runs that begin and end at multiples of kTileElements, so that it does not depend on how a matrix comes
// to its device.
void Optimizer::append_norms(size_t index, const Span& span, std::vector<at::Tensor>* norms) {
  const auto measure = [norms](const at::Tensor& numbers, int64_t runs) {
    if (numbers.numel() == 0) return;
    norms->push_back(at::linalg_vector_norm(numbers.view({runs, -1}), 2, {1}, false, at::kFloat));
  };
  const auto append = [&](const TiledMatrix::Run& run, int64_t begin) {
    const at::Tensor& numbers = run.gradient;
    const int64_t all = numbers.numel(), before = (begin + kTileElements - 1) / kTileElements * kTileElements;
    const int64_t first = std::min(all, before - begin), whole = (all - first) / kTileElements;
    measure(numbers.narrow(0, 0, first), 1);
    measure(numbers.narrow(0, first, whole * kTileElements), whole);
    measure(numbers.narrow(0, first + whole * kTileElements, all - first - whole * kTileElements), 1);
  };
  parameters_.for_each_run(index, span.begin, span.length, append);
}

namespace {

// In their order. Those that follow each other on one device come in one copy: each copy waits for the
// device.
std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& norms) {
  std::vector<at::Tensor> copied;
  for (auto begin = norms.begin(); begin != norms.end();) {
    const auto end = std::find_if(begin, norms.end(),
                                  [&](const at::Tensor& norm) { return norm.device() != begin->device(); });
    if (begin->is_cuda())
      copied.push_back(at::cat({&*begin, size_t(end - begin)}).cpu());
    else
      copied.insert(copied.end(), begin, end);
    begin = end;
  }
  return copied;
}

}  // namespace

// Of several ranks each measures its own sections, at every stage of ZeRO.
void Optimizer::measure(size_t index) {
  std::vector<at::Tensor> norms;
  if (share_.measured.empty())
    append_norms(index, {0, parameters_.value(index).numel()}, &norms);
  else
    for (const Span& span : share_.measured[index]) append_norms(index, span, &norms);
  norms_[index] = std::move(norms);
}

void Optimizer::measure_norm(double loss_scale) {
  if (share_.over_ranks) forget_norms();  // none was measured before the ranks' sums
  parameters_.walk(
      Parameters::Walk::kReadGradients, [this](size_t i) { measure(i); },
      [this](size_t first, size_t count) {
        return std::ranges::any_of(std::span(norms_).subspan(first, count),
                                   [](const auto& of) { return of.empty(); });
      });
  std::vector<at::Tensor> norms;
  for (const auto& of : norms_) norms.insert(norms.end(), of.begin(), of.end());
  double squares = 0;  // in the order of the parameters, on the host: the same wherever the layers lie
  for (const at::Tensor& part : on_host(norms)) {
    for (int64_t i = 0; i < part.numel(); ++i) {
      const double value = part.const_data_ptr<float>()[i];
      squares += value * value;
    }
  }
  if (share_.over_ranks) squares = share_.over_ranks(squares);
  norm_ = std::sqrt(squares) / loss_scale;
}

void Optimizer::prepare(uint64_t step, double loss_scale) {
  const at::NoGradGuard no_grad;
  finish_update();
  prepare_scratch();
  parameters_.reserve();
  measure_norm(loss_scale);
  const double clip = train_.clip > 0 && norm_ > train_.clip ? train_.clip / (norm_ + 1e-6) : 1;
  if (states_.uses_nvme()) states_.nvme().read_ahead();
  update_ = {.number = updates_ + 1, .rate = learning_rate(train_, step), .scale = clip / loss_scale};
  if (rule_->prepares())
    parameters_.walk(Parameters::Walk::kReadBoth, [&](size_t i) { rule_->prepare(update_, updated(i)); });
}

bool Optimizer::commit(Later later) {
  forget_norms();
  if (train_.numerics.precision == Precision::kFp16Mixed && !std::isfinite(norm_)) return false;
  const at::NoGradGuard no_grad;
  scale_ = update_.scale;
  rule_->begin(update_);
  tiles_.begin();
  ++updates_;
  const auto visit = [this](size_t i) { update(i); };
  if (later) {
    parameters_.update_later({.visit = visit, .within = std::move(later), .end = [this] { end_update(); }});
  } else {
    parameters_.walk(Parameters::Walk::kUpdate, visit);
    end_update();
  }
  return true;
}

void Optimizer::end_update() {
  tiles_.end();
  for (size_t i = 0; i < states_.size(); ++i) rule_->finish(updated(i));
}

void Optimizer::update(size_t index) {
  for (const auto& [begin, length] : updated_at_once(index)) {
    const TileKey key{index, begin, length};
    update_tile(key, here(key, tiles_.next()));
    tiles_.updated();
  }
  if (share_.after_update) share_.after_update(index);
}

at::Tensor Optimizer::in_floats(Scratch& scratch, const char* name, const at::Tensor& tile) const {
  if (tile.scalar_type() == at::kFloat) return tile;
  return scratch.at(name).narrow(0, 0, tile.numel()).copy_(tile);
}

void Optimizer::update_tile(const TileKey& key, const Here& here) {
  Tile tile{.parameter = key.parameter,
            .begin = key.begin,
            .value = {},
            .gradient = here.gradient,
            .states = here.states,
            .decays = parameters_.value(key.parameter).dim() >= 2,  // norms and biases do not
            .weights = {},
            .chance = rounding_.chance({update_.number, key.parameter, 0})};
  const bool has_master = train_.numerics.has_master_weights();
  if (has_master) {
    tile.value = tile.states.front();
    tile.states.erase(tile.states.begin());
  }
  (train_.numerics.weight_bytes() == 4 ? tile.value : tile.weights) = here.value;
  if (rule_->apply_at_once(tile)) return;
  const int64_t most = at_once_by_operators(train_.numerics, key.length);
  if (key.length <= most) return apply(&tile, here, key.length);
  for (int64_t begin = 0; begin < key.length; begin += most) {
    const int64_t length = std::min(most, key.length - begin);
    const auto part = [&](const at::Tensor& of) { return of.narrow(0, begin, length); };
    Tile some = tile;
    some.begin += begin, some.weights = part(tile.weights);
    for (at::Tensor& state : some.states) state = part(state);
    apply(&some, {.value = part(here.value), .rows = {}, .gradient = part(here.gradient), .states = {}},
          length);
  }
}

// In floats, by a rule that leaves the rest to operators.
void Optimizer::apply(Tile* tile, const Here& here, int64_t length) {
  Scratch& scratch = scratch_[device_key(here.gradient)];
  const bool by_chance = train_.numerics.rounds_stochastically();
  tile->gradient = in_floats(scratch, "gradient", here.gradient);
  if (!tile->value.defined()) tile->value = read(here, length, scratch);
  if (by_chance) tile->weights.reset();
  if (!rule_->apply_at_once(*tile)) {
    if (update_.scale != 1) tile->gradient.mul_(scale_);
    rule_->apply(*tile);
    if (tile->weights.defined()) tile->weights.copy_(tile->value);
  }
  if (by_chance) store(*tile, here, scratch);
}

at::Tensor Optimizer::read(const Here& here, int64_t length, Scratch& scratch) {
  if (here.value.defined()) return in_floats(scratch, "value", here.value);
  at::Tensor floats = scratch.at("value").narrow(0, 0, length);
  int8_rounding_.read(here.rows, floats);
  return floats;
}

void Optimizer::store(const Tile& tile, const Here& here, Scratch& scratch) {
  const StochasticRounding::Key key{update_.number, tile.parameter, static_cast<uint64_t>(tile.begin)};
  const auto bits = [&] { return scratch.at("bits").narrow(0, 0, tile.value.numel()); };
  if (here.value.defined()) return rounding_.round(tile.value, bits(), here.value, key);
  const at::Tensor chances = bits().view(at::kFloat);
  rounding_.draw(chances, key);
  int8_rounding_.round(tile.value, tile.gradient, chances, here.rows);
}

std::vector<std::string> Optimizer::remarks() const {
  std::vector<std::string> all = rule_->remarks();
  for (std::string& remark : rounding_.remarks()) all.push_back(std::move(remark));
  for (std::string& remark : states_.nvme().remarks()) all.push_back(std::move(remark));
  return all;
}

void Optimizer::move_to(Place place, const Homes& homes) {
  finish_update();
  tiles_.settle();
  states_.move_to(place, homes);
  prepare_scratch();
}

void Optimizer::set_update_slots(uint32_t slots) {
  if (slots_ == slots) return;
  finish_update();
  tiles_.settle();
  slots_ = slots;
  tiles_.prepare(schedule(), slots_);
}

void Optimizer::set_updates_on_host(bool on_host) {
  if (on_host_ == on_host) return;
  finish_update();
  tiles_.settle();
  on_host_ = on_host;
}

void Optimizer::relocate(size_t first, size_t count, at::Device device) {
  finish_update();
  tiles_.settle();
  states_.relocate(first, count, device);
}

std::vector<at::Tensor> Optimizer::states(size_t index) {
  finish_update();
  tiles_.settle();
  return states_.read(index);
}

at::Tensor Optimizer::state(size_t index, size_t which) {
  finish_update();
  tiles_.settle();
  return states_.read(index, which);
}

void Optimizer::set_states(size_t index, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  finish_update();
  tiles_.settle();
  states_.write(index, values);
}

at::Tensor Optimizer::numbers(size_t index) const {
  const Int8Weight* int8 = parameters_.int8(index);
  return int8 ? numbers_of(*int8, at::kFloat) : parameters_.value(index).detach();
}

std::vector<StateTensor> Optimizer::state_shapes(size_t index) const {
  return optimizer_state(train_.numerics, parameters_.value(index).sizes().vec());
}

at::Tensor Optimizer::weights(size_t index) {
  if (has_masters()) return state(index, 0);
  at::Tensor stored = parameters_.read_stored(index, 0);
  if (parameters_.int8(index) == nullptr) return stored;
  return numbers_of({stored, parameters_.read_stored(index, 1)}, at::kFloat);
}

}  // namespace spillway::trainer
