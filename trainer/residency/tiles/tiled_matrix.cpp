#include "trainer/residency/tiles/tiled_matrix.h"

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

// Every device reads the host's memory; each has a file of its own.
std::shared_ptr<LayerHome> home_for(at::Device device, StreamedLayers* streamed, const MatrixBytes& bytes) {
  const Place place = bytes.home()->place();
  if (place == Place::kHost) return bytes.home();
  std::shared_ptr<LayerHome> home = streamed->home(bytes.name(), device, bytes.bytes(), place, {});
  bytes.copy_to(*home);
  return home;
}

void move_bytes(MatrixBytes* bytes, at::Device device, StreamedLayers* streamed, Place place) {
  if (bytes->home()->place() == streamed->place_of(bytes->bytes(), place)) return;
  std::shared_ptr<LayerHome> home = streamed->home(bytes->name(), device, bytes->bytes(), place, {});
  bytes->copy_to(*home);
  bytes->take_home(std::move(home));
}

}  // namespace

TiledMatrix::TiledMatrix(TileCaches* caches, const MatrixCut& cut, Bytes value, Bytes gradient,
                         uint32_t accumulated, at::Device device)
    : caches_(caches),
      cut_(cut),
      value_(std::move(value)),
      gradient_(std::move(gradient)),
      first_key_(caches->next_key),
      device_(device),
      accumulated_(size_t(cut.row_tiles()), accumulated) {
  caches->next_key = end_key();
  enter(device);
}

// The host's memory goes: no copy may still read or write it.
TiledMatrix::~TiledMatrix() {
  try {
    synchronise();
  } catch (const std::exception&) {  // the device is lost, and its copies with it
  }
  for (uint32_t each = first_key_; each < end_key(); ++each) {
    caches_->values.remove(each);
    if (caches_->gradients.has(each)) caches_->gradients.remove(each);
  }
}

void TiledMatrix::synchronise() const {
  caches_->values.cache_of(first_key_).synchronise();
  caches_->gradients.cache_of(first_key_).synchronise();
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

MatrixBytes::Tile TiledMatrix::tile(Cut cut, int64_t number) const {
  const auto part = [&](int64_t all, int64_t each) {
    return MatrixBytes::Tile{cut, number * each, std::min(each, all - number * each)};
  };
  if (cut == Cut::kRows) return part(cut_.rows, cut_.row_tile);
  if (cut == Cut::kColumns) return part(cut_.columns, cut_.column_tile);
  return part(cut_.rows * cut_.columns, cut_.update_tile);
}

uint32_t TiledMatrix::key(Cut cut, int64_t number) const {
  int64_t before = 0;
  for (const Cut each : kCuts) {
    if (each == cut) break;
    before += tiles(each);
  }
  return first_key_ + static_cast<uint32_t>(before + number);
}

void TiledMatrix::enter(at::Device device) {
  for (const Cut cut : kCuts)
    for (int64_t number = 0; number < tiles(cut); ++number) {
      const MatrixBytes::Tile part = tile(cut, number);
      caches_->values.add(key(cut, number), device, value_->block(part, device), false);
      if (cut == Cut::kColumns) continue;
      caches_->gradients.add(key(cut, number), device, gradient_->block(part, device),
                             gradient_->is_zero() && cut == Cut::kRows);
    }
}

const TiledMatrix::Bytes& TiledMatrix::value() const {
  LayerCache& cache = caches_->values.cache_of(first_key_);
  cache.synchronise();
  cache.turn();
  return value_;
}

const TiledMatrix::Bytes& TiledMatrix::gradient() const {
  LayerCache& cache = caches_->gradients.cache_of(first_key_);
  cache.synchronise();
  if (!gradient_->is_zero()) fill_zero();
  cache.turn();
  return gradient_;
}

void TiledMatrix::fill_zero() const {
  LayerCache& cache = caches_->gradients.cache_of(first_key_);
  for (int64_t number = 0; number < cut_.row_tiles(); ++number) {
    const uint32_t each = key(Cut::kRows, number);
    if (!cache.is_zero(each)) continue;
    cache.synchronise();
    gradient_->set_zero(tile(Cut::kRows, number));
    cache.set_filled(each);
  }
}

TiledMatrix::Homes TiledMatrix::homes_for(at::Device device) const {
  synchronise();
  return {home_for(device, &caches_->values, *value_), home_for(device, &caches_->gradients, *gradient_)};
}

void TiledMatrix::move_to(at::Device device, Homes homes) {
  value_->take_home(std::move(homes.value));
  gradient_->take_home(std::move(homes.gradient));
  for (StreamedLayers* streamed : {&caches_->values, &caches_->gradients})
    for (uint32_t each = first_key_; each < end_key(); ++each) {
      if (!streamed->has(each)) continue;
      const LayerCache& cache = streamed->cache_of(each);
      const bool is_zero = cache.is_zero(each);
      LayerBlock block = cache.block(each).on(device, cache.block(each).shared_home());
      streamed->remove(each);
      streamed->add(each, device, std::move(block), is_zero);
    }
  device_ = device;
}

void TiledMatrix::move_home(Place value, Place gradient) {
  synchronise();
  move_bytes(gradient_.get(), device_, &caches_->gradients, gradient);
  move_bytes(value_.get(), device_, &caches_->values, value);
}

void TiledMatrix::append_keys(Cut cut, std::vector<uint32_t>* keys) const {
  for (int64_t number = 0; number < tiles(cut); ++number) keys->push_back(key(cut, number));
}

void TiledMatrix::for_each_tile(Cut cut, Compute compute) const {
  for (int64_t number = 0; number < tiles(cut); ++number) {
    const uint32_t each = key(cut, number);
    const MatrixBytes::Tile part = tile(cut, number);
    caches_->values.begin(each, Use::kRead);
    compute(tile_in(caches_->values, each), part.first, part.count);
    caches_->values.end(each, After::kKept);
  }
}

void TiledMatrix::accumulate(Fresh fresh) {
  const at::NoGradGuard no_grad;
  for (int64_t number = 0; number < cut_.row_tiles(); ++number) {
    uint32_t& count = accumulated_[size_t(number)];
    if (count != caches_->micro_batch) continue;
    const MatrixBytes::Tile part = tile(Cut::kRows, number);
    const at::Tensor made = fresh(part.first, part.count);
    const uint32_t each = key(Cut::kRows, number);
    caches_->gradients.begin(each, Use::kWrite);
    tile_in(caches_->gradients, each).add_(made);
    ++count;
    caches_->gradients.end(each, After::kKept);
  }
}

void TiledMatrix::clear() {
  for (int64_t number = 0; number < cut_.row_tiles(); ++number) {
    const uint32_t each = key(Cut::kRows, number);
    caches_->gradients.cache_of(each).set_zero(each);
  }
  gradient_->discard();
}

TiledMatrix::Run TiledMatrix::open(int64_t begin, int64_t length, Access access) {
  const int64_t run = begin / cut_.update_tile;
  const uint32_t each = key(Cut::kUpdate, run);
  if (open_ && open_->run != run) close();
  if (!open_) {
    caches_->gradients.begin(each, access == Access::kChange ? Use::kWrite : Use::kRead);
    if (needs_value(access))
      caches_->values.begin(each, access == Access::kUpdate ? Use::kWrite : Use::kRead);
    open_ = Open{run, access};
  }
  const int64_t first = begin - run * cut_.update_tile;
  Run result{.value = {}, .gradient = tile_in(caches_->gradients, each).narrow(0, first, length)};
  if (needs_value(access)) result.value = tile_in(caches_->values, each).narrow(0, first, length);
  return result;
}

void TiledMatrix::close() {
  if (!open_) return;
  const auto [run, access] = *std::exchange(open_, std::nullopt);
  const uint32_t each = key(Cut::kUpdate, run);
  caches_->gradients.end(each, access == Access::kUpdate ? After::kSpoilt : After::kKept);
  if (needs_value(access)) caches_->values.end(each, After::kKept);
}

}  // namespace spillway::trainer
