#include "trainer/plan/parameters/optimizer_state.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trainer/plan/parameters/tile_record.h"

namespace spillway::trainer {
namespace {

using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool has_factors(const Sizes& sizes) {
  return sizes.size() == 2;
}

bool is_adam(const Numerics& numerics) {
  return numerics.optimizer == OptimizerKind::kAdamW || numerics.optimizer == OptimizerKind::kAdam;
}

void add_moment(std::vector<StateTensor>* state, const std::string& name, const Sizes& sizes,
                bool quantized) {
  if (!quantized) {
    state->push_back({.name = name, .sizes = sizes});
    return;
  }
  const int64_t blocks = (product(sizes) + kQuantizationBlock - 1) / kQuantizationBlock;
  state->push_back({.name = name + ".codes", .is_codes = true, .sizes = sizes});
  state->push_back({.name = name + ".scales", .sizes = {blocks}, .elements_per_entry = kQuantizationBlock});
}

void add_second_moment_of_adafactor(std::vector<StateTensor>* state, const Sizes& sizes) {
  if (!has_factors(sizes)) {
    state->push_back({.name = "second", .sizes = sizes, .elements_per_entry = 0});
    return;
  }
  state->push_back({.name = "row", .sizes = {sizes[0]}, .elements_per_entry = 0});
  state->push_back({.name = "column", .sizes = {sizes[1]}, .elements_per_entry = 0});
}

}  // namespace

bool rounds_at_once(const Numerics& numerics) {
  return is_adam(numerics) && numerics.precision == Precision::kBf16;
}

// One kernel reads and writes each number once, and needs no room.
bool updates_at_once(const Numerics& numerics) {
  if (numerics.rounds_stochastically()) return rounds_at_once(numerics);
  return is_adam(numerics) || numerics.optimizer == OptimizerKind::kAdamW8bit;
}

int64_t StateTensor::entries() const {
  return product(sizes);
}

std::vector<StateTensor> optimizer_state(const Numerics& numerics, const Sizes& sizes) {
  std::vector<StateTensor> state;
  if (numerics.has_master_weights()) state.push_back({.name = "master", .sizes = sizes});
  const bool quantized =
      numerics.optimizer == OptimizerKind::kAdamW8bit && product(sizes) >= kLeastQuantizedElements;
  switch (numerics.optimizer) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW8bit:
      add_moment(&state, "first", sizes, quantized);
      add_moment(&state, "second", sizes, quantized);
      break;
    case OptimizerKind::kSgd:
      add_moment(&state, "momentum", sizes, false);
      break;
    case OptimizerKind::kAdafactor:
      add_second_moment_of_adafactor(&state, sizes);
      break;
  }
  return state;
}

std::vector<StateTensor> kept_of(std::vector<StateTensor> states, int64_t elements) {
  for (StateTensor& state : states)
    if (state.elements_per_entry > 0) state.sizes = {entries_of(state, elements)};
  return states;
}

int64_t UpdatedParameter::elements() const {
  int64_t all = 0;
  for (const Span& span : spans) all += span.length;
  return all;
}

std::vector<StateTensor> UpdatedParameter::kept(const Numerics& numerics) const {
  std::vector<StateTensor> states = optimizer_state(numerics, sizes);
  const int64_t all = elements();
  return all == product(sizes) ? states : kept_of(std::move(states), all);
}

std::vector<Span> tiles_of(const Numerics& numerics, const UpdatedParameter& parameter, bool states_on_host) {
  const int64_t tile = tile_elements(numerics, parameter.sizes, states_on_host);
  std::vector<Span> tiles;
  for (const auto& [first, length] : parameter.spans)
    for (int64_t begin = first, end = first + length; begin < end;) {
      const int64_t next = std::min(end, (begin / tile + 1) * tile);
      tiles.push_back({begin, next - begin});
      begin = next;
    }
  return tiles;
}

std::vector<TileRun> tile_runs(const Numerics& numerics, const UpdatedParameter& parameter,
                               bool states_on_host) {
  const int64_t tile = tile_elements(numerics, parameter.sizes, states_on_host);
  std::vector<TileRun> runs;
  for (const auto& [first, length] : parameter.spans) {
    if (length == 0) continue;
    const int64_t to_boundary = (tile - first % tile) % tile, before = std::min(length, to_boundary);
    const int64_t whole = (length - before) / tile, behind = (length - before) % tile;
    if (before > 0) runs.push_back({before, 1});
    if (whole > 0) runs.push_back({tile, whole});
    if (behind > 0) runs.push_back({behind, 1});
  }
  return runs;
}

int64_t tile_elements(const Numerics& numerics, const Sizes& sizes, bool states_on_host) {
  const int64_t elements = product(sizes);
  if (!states_on_host && updates_at_once(numerics)) return elements;
  int64_t unit = numerics.optimizer == OptimizerKind::kAdamW8bit ? kQuantizationBlock : 1;
  const bool whole_rows =
      numerics.optimizer == OptimizerKind::kAdafactor || numerics.precision == Precision::kInt8;
  if (whole_rows && has_factors(sizes)) unit = std::lcm(unit, sizes[1]);
  return std::min(std::max<int64_t>(1, kTileElements / unit) * unit, elements);
}

UpdateNeeds update_needs(const Numerics& numerics, const UpdatedParameter& parameter, bool states_on_host) {
  const Sizes& sizes = parameter.sizes;
  const std::vector<StateTensor> states = parameter.kept(numerics);
  UpdateNeeds needs;
  int64_t tile = 0;
  for (const TileRun& run : tile_runs(numerics, parameter, states_on_host)) {
    tile = std::max(tile, run.length);
    needs.tiles += static_cast<uint64_t>(run.count);
  }
  if (states_on_host) needs.passing = tile_bytes(states, tile);
  for (const StateTensor& state : states)
    if (state.elements_per_entry == 0)
      needs.whole += 2 * state.bytes();  // the next state, and the factors that follow from it
  // Floats of the value and the gradient, and random bits.
  if (numerics.rounds_stochastically() && !rounds_at_once(numerics))
    needs.floats = uint64_t{3} * 4 * static_cast<uint64_t>(tile);
  // Of matrices in 8 bits: a scale for each row.
  if (numerics.precision == Precision::kInt8 && has_factors(sizes))
    needs.rows = uint64_t{4} * static_cast<uint64_t>(tile / sizes[1]);
  return needs;
}

void UpdateRoom::add(const UpdateNeeds& needs) {
  whole_ += needs.whole;
  if (needs.passing > 0) staged_ += needs.tiles;
  most_.passing = std::max(most_.passing, needs.passing);
  most_.floats = std::max(most_.floats, needs.floats);
  most_.rows = std::max(most_.rows, needs.rows);
}

uint64_t UpdateRoom::bytes(uint64_t slots) const {
  return whole_ + most_.floats + most_.rows + std::min(staged_, slots) * most_.passing;
}

}  // namespace spillway::trainer
