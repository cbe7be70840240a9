// Matrices that come to their device in tiles: how units are cut, and in which order the tiles come.
#include <ranges>
#include <set>
#include <span>
#include <stdexcept>

#include "trainer/step/parameters.h"

namespace spillway::trainer {
namespace {

using Cut = TiledMatrix::Cut;

}  // namespace

// A parameter's numbers on the host, until those of another one are asked for; not defined where they are
// zero. REQUIRES: its unit has its home elsewhere than on the device, or gets its first one.
at::Tensor Parameters::at_home(Role role, size_t index) {
  if (const auto& matrix = tiled_[index]) {
    const MatrixBytes& bytes = role == Role::kValues ? *matrix->value() : *matrix->gradient();
    return bytes.is_zero() ? at::Tensor() : bytes.read();
  }
  const auto unit = static_cast<uint32_t>(unit_of(index));
  if (!streamed(role).has(unit)) return role == Role::kValues ? values_[index].detach() : at::Tensor();
  LayerCache& cache = streamed(role).cache_of(unit);
  cache.synchronise();
  if (cache.is_zero(unit)) return {};
  const size_t first = ranges_.at(unit).first;
  const auto before = std::span(tiled_).subspan(first, index - first);
  const LayerBlock& block = cache.block(unit);
  const auto part = std::ranges::count_if(before, [](const auto& matrix) { return matrix == nullptr; });
  return block.view(block.home().read(nullptr), size_t(part));
}

// Of a matrix that is in tiles already they are the same.
TiledMatrix::Bytes Parameters::matrix_bytes(Role role, size_t index, const MatrixCut& cut) {
  const bool is_value = role == Role::kValues;
  if (const auto& matrix = tiled_[index]) return is_value ? matrix->value() : matrix->gradient();
  const at::ScalarType type = (is_value ? values_ : gradients_)[index].scalar_type();
  StreamedLayers& tiles = is_value ? tile_caches_.values : tile_caches_.gradients;
  auto bytes = std::make_shared<MatrixBytes>(
      names_[index], cut, type,
      tiles.home(names_[index], devices_[index], MatrixBytes::bytes_of(cut, type),
                 is_value ? values_at_ : gradients_at_, {}));
  if (const at::Tensor numbers = at_home(role, index); numbers.defined()) bytes->write(numbers);
  return bytes;
}

// Of those parameters of a unit that stay whole.
LayerBlock Parameters::block_of(Role role, const std::vector<size_t>& parameters, bool* are_zero) {
  const bool is_value = role == Role::kValues;
  const std::vector<at::Tensor>& like = is_value ? values_ : gradients_;
  std::vector<LayerBlock::Part> parts;
  parts.reserve(parameters.size());
  for (const size_t i : parameters) parts.push_back({like[i].sizes().vec(), like[i].scalar_type()});
  const auto unit = static_cast<uint32_t>(unit_of(parameters.front()));
  const at::Device device = devices_[parameters.front()];
  LayerBlock block(std::move(parts), device, [&](int64_t bytes) {
    return streamed(role).home(unit_name(unit), device, bytes, is_value ? values_at_ : gradients_at_, {});
  });
  *are_zero = std::ranges::none_of(parameters, [&](size_t i) { return at_home(role, i).defined(); });
  if (*are_zero) return block;
  LayerHome& home = block.home();
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor numbers = at_home(role, parameters[i]);
    // Both may need the one buffer of a file that is free.
    if (numbers.defined() && home.place() != Place::kHost) numbers = numbers.clone();
    const at::Tensor to = block.view(i == 0 ? home.overwrite(nullptr) : home.change(nullptr), i);
    numbers.defined() ? to.copy_(numbers) : to.zero_();
    home.written_by(nullptr);
  }
  home.settle();
  return block;
}

Parameters::CutUnit Parameters::cut_unit(const Range& range, uint32_t tiles) {
  const at::NoGradGuard no_grad;
  CutUnit cut;
  std::vector<size_t> whole;
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    const auto into = cut_of(table_[i], tiles);
    if (!into) whole.push_back(i);
    cut.matrices.push_back(into ? std::make_unique<TiledMatrix>(
                                      &tile_caches_, *into, matrix_bytes(Role::kValues, i, *into),
                                      matrix_bytes(Role::kGradients, i, *into), accumulated(i), devices_[i])
                                : nullptr);
  }
  bool values_are_zero = false;  // they never are
  cut.values = block_of(Role::kValues, whole, &values_are_zero);
  cut.gradients = block_of(Role::kGradients, whole, &cut.are_zero);
  return cut;
}

void Parameters::take_cut(uint32_t unit, Range* range, CutUnit cut) {
  const at::NoGradGuard no_grad;
  if (!cut.values || !cut.gradients) throw std::logic_error("a unit was cut without what stays whole of it");
  LayerBlock &values = *cut.values, &gradients = *cut.gradients;
  const at::Device device = devices_[range->first];
  for (StreamedLayers* streamed : {&streamed_values_, &streamed_gradients_})
    if (streamed->has(unit)) streamed->remove(unit);
  size_t part = 0;
  for (size_t i = 0; i < range->count; ++i) {
    const size_t index = range->first + i;
    accumulated_[index] = accumulated(index);
    tiled_[index] = std::move(cut.matrices[i]);
    if (!tiled_[index]) {
      values_[index] = values.tensor(part), gradients_[index] = gradients.tensor(part);
      ++part;
      continue;
    }
    values_[index] = without_memory(values_[index].sizes(), values_[index].scalar_type(), device);
    gradients_[index] = without_memory(gradients_[index].sizes(), gradients_[index].scalar_type(), device);
  }
  streamed_values_.add(unit, device, std::move(values), false);
  streamed_gradients_.add(unit, device, std::move(gradients), cut.are_zero);
  renew_leaves(*range);
}

void Parameters::cut(uint32_t unit, Range* range, uint32_t tiles) {
  take_cut(unit, range, cut_unit(*range, tiles));
  range->tiles = tiles;
}

void Parameters::set_tiles(uint32_t tiles) {
  finish_update();
  for (auto& [unit, range] : ranges_) {
    if (range.tiles == tiles || !streamed_values_.has(unit) || !streamed_gradients_.has(unit)) continue;
    cut(unit, &range, tiles);
  }
  tile_caches_.close_unused_files();
}

// Matrices of a unit are used in the table's order, and in the backward in the opposite one. What waits for
// an update has that first.
void Parameters::follow_tiles(const std::vector<UnitUse>& uses) {
  tile_caches_.let_go();
  std::vector<uint32_t> values, gradients;
  const auto matrices_of = [this](uint32_t unit) {
    const Range& range = ranges_.at(unit);
    return std::span(tiled_).subspan(range.first, range.count);
  };
  const Cut of_outputs = layout_ == MatrixLayout::kOutIn ? Cut::kRows : Cut::kColumns,
            of_inputs = layout_ == MatrixLayout::kOutIn ? Cut::kColumns : Cut::kRows;
  for (const uint32_t unit : waiting_)
    for (const auto& matrix : matrices_of(unit))
      if (matrix) matrix->append_keys(Cut::kUpdate, &gradients);
  std::set<uint32_t> waiting(waiting_.begin(), waiting_.end());
  for (const auto& [unit, backward] : uses) {
    if (!ranges_.contains(unit)) continue;
    const auto matrices = matrices_of(unit);
    if (waiting.erase(unit) > 0)
      for (const auto& matrix : matrices)
        if (matrix) matrix->append_keys(Cut::kUpdate, &values);
    if (!backward) {
      for (const auto& matrix : matrices)
        if (matrix) matrix->append_keys(of_outputs, &values);
      continue;
    }
    for (const auto& matrix : std::views::reverse(matrices))
      if (matrix) matrix->append_keys(of_inputs, &values), matrix->append_keys(Cut::kRows, &gradients);
  }
  for (const uint32_t unit : waiting)  // that no pass comes to
    for (const auto& matrix : matrices_of(unit))
      if (matrix) matrix->append_keys(Cut::kUpdate, &values);
  tile_caches_.values.follow(values);
  tile_caches_.gradients.follow(gradients);
}

void Parameters::walk_tiles(Walk kind) {
  walk_ = kind;
  open_ = nullptr;
  std::vector<uint32_t> keys;
  tile_caches_.turn();
  for (const auto& matrix : tiled_)
    if (matrix) matrix->forget_open(), matrix->fill_zero(), matrix->append_keys(Cut::kUpdate, &keys);
  tile_caches_.gradients.follow(keys);
  if (needs_values(kind)) tile_caches_.values.follow(keys);
}

TiledMatrix::Run Parameters::run(size_t index, int64_t begin, int64_t length) {
  using Access = TiledMatrix::Access;
  if (open_home_) return run_at_home(*open_home_, index, begin, length);
  TiledMatrix* const matrix = tiled_[index].get();
  if (open_ != matrix) close_run(), open_ = matrix;  // what is whole writes nothing: devices measure at once
  if (matrix != nullptr)
    return matrix->open(begin, length,
                        walk_ == Walk::kReadGradients     ? Access::kGradient
                        : walk_ == Walk::kChangeGradients ? Access::kChange
                        : walk_ == Walk::kUpdate          ? Access::kUpdate
                                                          : Access::kBoth);
  const auto part = [&](const at::Tensor& of) { return of.view({-1}).narrow(0, begin, length); };
  const auto own = [&](const at::Tensor& share) { return own_part(share, index, begin, length); };
  TiledMatrix::Run run{.value = {},
                       .gradient = has_shares() ? own(gradient_shares_[index]) : part(gradients_[index])};
  if (int8(index) == nullptr && needs_values(walk_))
    run.value = is_shared(index) ? own(value_shares_[index]) : part(values_[index].detach());
  return run;
}

void Parameters::for_each_run(size_t index, int64_t begin, int64_t length,
                              const std::function<void(const TiledMatrix::Run&, int64_t)>& visit) {
  const int64_t most = run_numbers(index), end = begin + length;
  for (int64_t at = begin; at < end;) {
    const int64_t next = std::min(end, (at / most + 1) * most);
    visit(run(index, at, next - at), at);
    at = next;
  }
}

void Parameters::close_run() {
  if (open_ != nullptr) std::exchange(open_, nullptr)->close();
}

int64_t Parameters::run_numbers(size_t index) const {
  return tiled_[index] ? tiled_[index]->cut().update_tile : std::max<int64_t>(1, values_[index].numel());
}

}  // namespace spillway::trainer
