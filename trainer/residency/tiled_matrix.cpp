#include "trainer/residency/tiled_matrix.h"

#include <algorithm>

namespace spillway::trainer {
namespace {

using Use = LayerCache::Use;
using After = LayerCache::After;
constexpr TiledMatrix::Cut kCuts[] = {TiledMatrix::Cut::kRows, TiledMatrix::Cut::kColumns,
                                      TiledMatrix::Cut::kUpdate};

const at::Tensor& tile_in(const StreamedLayers& streamed, uint32_t key) {
  return streamed.cache_of(key).block(key).tensor(0);
}

}  // namespace

TiledMatrix::TiledMatrix(TileCaches* caches, const MatrixCut& cut, at::Tensor value, at::Tensor gradient,
                         bool is_zero, uint32_t accumulated, at::Device device)
    : caches_(caches),
      cut_(cut),
      value_(std::move(value)),
      gradient_(std::move(gradient)),
      first_key_(caches->next_key),
      accumulated_(size_t(cut.row_tiles()), accumulated) {
  caches->next_key = key(Cut::kUpdate, cut.update_tiles());
  enter(caches, device, is_zero);
}

// The host's memory goes: no copy may still read or write it.
TiledMatrix::~TiledMatrix() {
  try {
    caches_->values.cache_of(first_key_).synchronise();
    caches_->gradients.cache_of(first_key_).synchronise();
  } catch (const std::exception&) {  // the device is lost, and its copies with it
  }
  for (uint32_t key = first_key_; key < this->key(Cut::kUpdate, cut_.update_tiles()); ++key) {
    caches_->values.remove(key);
    if (caches_->gradients.has(key)) caches_->gradients.remove(key);
  }
}

int64_t TiledMatrix::tiles(Cut cut) const {
  switch (cut) {
    case Cut::kRows:
      return cut_.row_tiles();
    case Cut::kColumns:
      return cut_.column_tiles();
    case Cut::kUpdate:
      return cut_.update_tiles();
  }
  return 0;
}

uint32_t TiledMatrix::key(Cut cut, int64_t tile) const {
  int64_t before = 0;
  for (const Cut each : kCuts) {
    if (each == cut) break;
    before += tiles(each);
  }
  return first_key_ + static_cast<uint32_t>(before + tile);
}

at::Tensor TiledMatrix::view(const at::Tensor& of, Cut cut, int64_t tile) const {
  const auto part = [tile](const at::Tensor& whole, int64_t dimension, int64_t lines) {
    const int64_t first = tile * lines;
    return whole.narrow(dimension, first, std::min(lines, whole.size(dimension) - first));
  };
  if (cut == Cut::kRows) return part(of, 0, cut_.row_tile);
  if (cut == Cut::kColumns) return part(of, 1, cut_.column_tile);
  return part(of.view({-1}), 0, cut_.update_tile);
}

void TiledMatrix::enter(TileCaches* caches, at::Device device, bool is_zero) {
  for (const Cut cut : kCuts)
    for (int64_t tile = 0; tile < tiles(cut); ++tile) {
      caches->values.add(key(cut, tile), device, LayerBlock::of(view(value_, cut, tile), device), false);
      if (cut == Cut::kColumns) continue;
      caches->gradients.add(key(cut, tile), device, LayerBlock::of(view(gradient_, cut, tile), device),
                            is_zero && cut == Cut::kRows);
    }
}

const at::Tensor& TiledMatrix::value() const {
  LayerCache& cache = caches_->values.cache_of(first_key_);
  cache.synchronise();
  cache.turn();
  return value_;
}

const at::Tensor& TiledMatrix::gradient() const {
  LayerCache& cache = caches_->gradients.cache_of(first_key_);
  cache.synchronise();
  for (int64_t tile = 0; tile < cut_.row_tiles(); ++tile)
    if (cache.is_zero(key(Cut::kRows, tile))) view(gradient_, Cut::kRows, tile).zero_();
  cache.turn();
  return gradient_;
}

void TiledMatrix::move_to(at::Device device) {
  caches_->values.cache_of(first_key_).synchronise();
  caches_->gradients.cache_of(first_key_).synchronise();
  for (StreamedLayers* streamed : {&caches_->values, &caches_->gradients})
    for (uint32_t each = first_key_; each < key(Cut::kUpdate, cut_.update_tiles()); ++each) {
      if (!streamed->has(each)) continue;
      const bool is_zero = streamed->cache_of(each).is_zero(each);
      LayerBlock block = streamed->cache_of(each).block(each).on(device);
      streamed->remove(each);
      streamed->add(each, device, std::move(block), is_zero);
    }
}

void TiledMatrix::append_keys(Cut cut, std::vector<uint32_t>* keys) const {
  for (int64_t tile = 0; tile < tiles(cut); ++tile) keys->push_back(key(cut, tile));
}

void TiledMatrix::for_each_tile(Cut cut, Compute compute) const {
  const int64_t lines = cut == Cut::kRows ? cut_.row_tile : cut_.column_tile;
  for (int64_t tile = 0; tile < tiles(cut); ++tile) {
    const uint32_t each = key(cut, tile);
    caches_->values.begin(each, Use::kRead);
    const at::Tensor& there = tile_in(caches_->values, each);
    compute(there, tile * lines, there.size(cut == Cut::kRows ? 0 : 1));
    caches_->values.end(each, After::kKept);
  }
}

void TiledMatrix::accumulate(Fresh fresh) {
  const at::NoGradGuard no_grad;
  for (int64_t tile = 0; tile < cut_.row_tiles(); ++tile) {
    uint32_t& count = accumulated_[size_t(tile)];
    if (count != caches_->micro_batch) continue;
    const int64_t first = tile * cut_.row_tile;
    const at::Tensor made = fresh(first, std::min(cut_.row_tile, cut_.rows - first));
    const uint32_t each = key(Cut::kRows, tile);
    caches_->gradients.begin(each, Use::kWrite);
    tile_in(caches_->gradients, each).add_(made);
    ++count;
    caches_->gradients.end(each, After::kKept);
  }
}

void TiledMatrix::clear() {
  for (int64_t tile = 0; tile < cut_.row_tiles(); ++tile) {
    const uint32_t each = key(Cut::kRows, tile);
    caches_->gradients.cache_of(each).set_zero_of(each);
  }
  std::ranges::fill(accumulated_, 0);
}

TiledMatrix::Run TiledMatrix::open(int64_t begin, int64_t length, Access access) {
  const int64_t run = begin / cut_.update_tile;
  const uint32_t each = key(Cut::kUpdate, run);
  if (open_ && open_->run != run) close();
  if (!open_) {
    caches_->gradients.begin(each, Use::kRead);
    if (access != Access::kGradient)
      caches_->values.begin(each, access == Access::kUpdate ? Use::kWrite : Use::kRead);
    open_ = Open{run, access};
  }
  const int64_t first = begin - run * cut_.update_tile;
  Run result{.value = {}, .gradient = tile_in(caches_->gradients, each).narrow(0, first, length)};
  if (access != Access::kGradient) result.value = tile_in(caches_->values, each).narrow(0, first, length);
  return result;
}

void TiledMatrix::close() {
  if (!open_) return;
  const auto [run, access] = *std::exchange(open_, std::nullopt);
  const uint32_t each = key(Cut::kUpdate, run);
  caches_->gradients.end(each, access == Access::kUpdate ? After::kWorthless : After::kKept);
  if (access != Access::kGradient) caches_->values.end(each, After::kKept);
}

}  // namespace spillway::trainer
