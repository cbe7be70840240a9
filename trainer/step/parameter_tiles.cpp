// Matrices that come to their device in tiles: how units are cut, and in which order the tiles come.
#include <ranges>
#include <span>

#include "trainer/residency/host_tensor.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {
namespace {

using Cut = TiledMatrix::Cut;

at::Tensor home_of(const at::Tensor& like, at::Device device) {
  return host_tensor(like.sizes(), like.scalar_type(), device);
}

LayerBlock block_of(const std::vector<at::Tensor>& tensors, at::Device device, bool are_zero) {
  std::vector<LayerBlock::Part> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) parts.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  LayerBlock block(std::move(parts), device);
  for (size_t i = 0; i < tensors.size() && !are_zero; ++i) block.host(i).copy_(tensors[i]);
  return block;
}

// What a unit's parameters hold on the host, of one kind: in the block, or as matrices in tiles.
std::vector<at::Tensor> on_host(const StreamedLayers& streamed, uint32_t unit,
                                std::span<const std::unique_ptr<TiledMatrix>> matrices,
                                const at::Tensor& (TiledMatrix::*of)() const) {
  LayerCache& cache = streamed.cache_of(unit);
  cache.synchronise();
  std::vector<at::Tensor> tensors;
  size_t part = 0;
  for (const auto& matrix : matrices)
    tensors.push_back(matrix ? ((*matrix).*of)() : cache.block(unit).host(part++));
  return tensors;
}

}  // namespace

Parameters::CutUnit Parameters::cut_unit(uint32_t unit, const Range& range, uint32_t tiles) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[range.first];
  const auto old = std::span(tiled_).subspan(range.first, range.count);
  const std::vector<at::Tensor> values = on_host(streamed_values_, unit, old, &TiledMatrix::value),
                                gradients = on_host(streamed_gradients_, unit, old, &TiledMatrix::gradient);
  // Of a unit in tiles each is zero by itself, and is made so here.
  const bool block_is_zero = streamed_gradients_.cache_of(unit).is_zero(unit);
  CutUnit cut{.matrices = {}, .values = {}, .gradients = {}, .are_zero = block_is_zero && range.tiles == 1};
  if (block_is_zero && !cut.are_zero)
    for (size_t i = 0; i < range.count; ++i)
      if (!old[i]) gradients[i].zero_();
  std::vector<at::Tensor> whole_values, whole_gradients;
  for (size_t i = 0; i < range.count; ++i) {
    const auto into = tiles > 1 ? cut_of(table_[range.first + i], tiles) : std::nullopt;
    if (!into) {
      cut.matrices.emplace_back();
      whole_values.push_back(values[i]), whole_gradients.push_back(gradients[i]);
      continue;
    }
    const at::Tensor value = home_of(values[i], device).copy_(values[i]);
    at::Tensor gradient = home_of(gradients[i], device);
    if (!cut.are_zero) gradient.copy_(gradients[i]);
    cut.matrices.push_back(std::make_unique<TiledMatrix>(&tile_caches_, *into, value, std::move(gradient),
                                                         cut.are_zero, accumulated(range.first + i), device));
  }
  cut.values = block_of(whole_values, device, false);
  cut.gradients = block_of(whole_gradients, device, cut.are_zero);
  return cut;
}

void Parameters::take_cut(uint32_t unit, Range* range, CutUnit cut) {
  const at::NoGradGuard no_grad;
  const at::Device device = devices_[range->first];
  streamed_values_.remove(unit), streamed_gradients_.remove(unit);
  size_t part = 0;
  for (size_t i = 0; i < range->count; ++i) {
    const size_t index = range->first + i;
    accumulated_[index] = accumulated(index);
    tiled_[index] = std::move(cut.matrices[i]);
    if (!tiled_[index]) {
      values_[index] = cut.values->tensor(part), gradients_[index] = cut.gradients->tensor(part);
      ++part;
      continue;
    }
    values_[index] = without_memory(values_[index].sizes(), values_[index].scalar_type(), device);
    gradients_[index] = without_memory(gradients_[index].sizes(), gradients_[index].scalar_type(), device);
  }
  streamed_values_.add(unit, device, std::move(*cut.values), false);
  streamed_gradients_.add(unit, device, std::move(*cut.gradients), cut.are_zero);
  renew_leaves(*range);
}

void Parameters::set_tiles(uint32_t tiles) {
  for (auto& [unit, range] : ranges_) {
    if (range.tiles == tiles || !streamed_values_.has(unit) || !streamed_gradients_.has(unit)) continue;
    CutUnit cut = cut_unit(unit, range, tiles);
    take_cut(unit, &range, std::move(cut));
    range.tiles = tiles;
  }
}

// Matrices of a unit are used in the table's order, and in the backward in the opposite one.
void Parameters::follow_tiles(const std::vector<UnitUse>& uses) {
  tile_caches_.let_go();
  std::vector<uint32_t> values, gradients;
  const Cut of_outputs = layout_ == MatrixLayout::kOutIn ? Cut::kRows : Cut::kColumns,
            of_inputs = layout_ == MatrixLayout::kOutIn ? Cut::kColumns : Cut::kRows;
  for (const auto& [unit, backward] : uses) {
    if (!ranges_.contains(unit)) continue;
    const Range& range = ranges_.at(unit);
    const auto matrices = std::span(tiled_).subspan(range.first, range.count);
    if (!backward) {
      for (const auto& matrix : matrices)
        if (matrix) matrix->append_keys(of_outputs, &values);
      continue;
    }
    for (const auto& matrix : std::views::reverse(matrices))
      if (matrix) matrix->append_keys(of_inputs, &values), matrix->append_keys(Cut::kRows, &gradients);
  }
  tile_caches_.values.follow(values);
  tile_caches_.gradients.follow(gradients);
}

void Parameters::walk_tiles(Walk kind) {
  walk_ = kind;
  std::vector<uint32_t> keys;
  for (const auto& matrix : tiled_)
    if (matrix) matrix->forget_open(), matrix->append_keys(Cut::kUpdate, &keys);
  tile_caches_.turn();
  tile_caches_.gradients.follow(keys);
  if (kind != Walk::kReadGradients) tile_caches_.values.follow(keys);
}

TiledMatrix::Run Parameters::run(size_t index, int64_t begin, int64_t length) {
  using Access = TiledMatrix::Access;
  if (tiled_[index])
    return tiled_[index]->open(begin, length,
                               walk_ == Walk::kReadGradients ? Access::kGradient
                               : walk_ == Walk::kUpdate      ? Access::kUpdate
                                                             : Access::kBoth);
  const auto part = [&](const at::Tensor& of) { return of.view({-1}).narrow(0, begin, length); };
  TiledMatrix::Run run{.value = {}, .gradient = part(gradients_[index])};
  if (int8(index) == nullptr && walk_ != Walk::kReadGradients) run.value = part(values_[index].detach());
  return run;
}

int64_t Parameters::run_numbers(size_t index) const {
  return tiled_[index] ? tiled_[index]->cut().update_tile : std::max<int64_t>(1, values_[index].numel());
}

}  // namespace spillway::trainer
