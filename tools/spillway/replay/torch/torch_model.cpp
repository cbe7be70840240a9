#include "tools/spillway/replay/torch/torch_model.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace spillway::tools {
namespace {

constexpr uint64_t kUnit = 512;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSmallRequest = 1 * kMiB;    // this and less is small
constexpr uint64_t kSmallSegment = 2 * kMiB;    // small requests share one
constexpr uint64_t kOwnSegment = 10 * kMiB;     // from here on a request has a segment of its own size,
constexpr uint64_t kSegmentUnit = 2 * kMiB;     // rounded up to this
constexpr uint64_t kLeastLargeRest = 1 * kMiB;  // a large block is split where more than this is left
constexpr uint64_t kLargestRequest = uint64_t{1} << 50;

}  // namespace

bool TorchModel::BySize::operator()(const Piece* a, const Piece* b) const {
  return std::tie(a->stream, a->size, a->segment, a->address) <
         std::tie(b->stream, b->size, b->segment, b->address);
}

bool TorchModel::ByAddress::operator()(const Piece* a, const Piece* b) const {
  return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
}

uint64_t TorchModel::Addresses::take(uint64_t bytes) {
  auto range = free_.begin();
  while (range->second < bytes) ++range;  // the last one holds more than any card
  const auto [begin, length] = *range;
  free_.erase(range);
  free_[begin + bytes] = length - bytes;
  return begin;
}

void TorchModel::Addresses::give(uint64_t address, uint64_t bytes) {
  auto after = free_.upper_bound(address);
  if (address + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) return void(before->second += bytes);
  }
  free_[address] = bytes;
}

TorchModel::TorchModel(TorchSettings settings, uint64_t capacity, PlacementObserver* observer)
    : settings_(std::move(settings)), capacity_(capacity), observer_(observer) {}

TorchModel::Pool& TorchModel::pool_of(uint32_t pool, bool small) {
  while (pools_.size() <= pool) {
    pools_.emplace_back();
    pools_.back()[1].small = true;
    for (Pool& half : pools_.back()) {
      half.is_private = pools_.size() > 1;
      half.number = static_cast<uint32_t>(pools_.size() - 1);
    }
  }
  return pools_[pool][small ? 1 : 0];
}

TorchModel::Piece* TorchModel::new_piece(Piece piece) {
  if (spare_.empty()) return &pieces_.emplace_back(piece);
  Piece* const made = spare_.back();
  spare_.pop_back();
  *made = piece;
  return made;
}

bool TorchModel::allocate(uint32_t block, uint64_t bytes, uint32_t stream, uint32_t pool_number) {
  if (bytes > kLargestRequest) return false;
  const uint64_t size = settings_.rounded(bytes);
  Pool& pool = pool_of(pool_number, size <= kSmallRequest);
  Piece* piece = find_free(pool, size, stream);
  if (piece == nullptr) piece = new_memory(pool, size, stream);
  if (piece == nullptr && release_enough(pool, size, stream)) piece = new_memory(pool, size, stream);
  if (piece == nullptr) {
    release_cached();
    piece = new_memory(pool, size, stream);
  }
  if (piece == nullptr) return false;
  if (should_split(*piece, size)) piece = split(piece, size);
  piece->used = true;
  if (blocks_.size() <= block) blocks_.resize(block + 1);
  blocks_[block] = piece;
  if (observer_ != nullptr) observer_->allocated(block, piece->address, piece->size);
  return true;
}

// What was freed while other streams use it is in use until then; a request that fails waits for them.
void TorchModel::free_later(uint32_t block) {
  pending_.push_back(block);
}

void TorchModel::free(uint32_t block) {
  Piece* const piece = block < blocks_.size() ? std::exchange(blocks_[block], nullptr) : nullptr;
  if (piece == nullptr) return;
  if (observer_ != nullptr) observer_->freed(block);
  put_free(piece);
}

void TorchModel::complete_pending() {
  for (const uint32_t block : pending_) free(block);
  pending_.clear();
}

uint64_t TorchModel::largest_free(uint32_t stream, uint32_t pool_number, bool small) const {
  if (pool_number >= pools_.size()) return 0;
  const Pool& pool = pools_[pool_number][small ? 1 : 0];
  Piece beyond;
  beyond.stream = stream + 1;
  const auto after = pool.free.lower_bound(&beyond);
  if (after == pool.free.begin()) return 0;
  const Piece* const largest = *std::prev(after);
  return largest->stream == stream ? largest->size : 0;
}

TorchModel::Piece* TorchModel::find_free(Pool& pool, uint64_t size, uint32_t stream) {
  Piece key;
  key.stream = stream;
  key.size = size;
  auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end() || (*found)->stream != stream) return nullptr;
  if (settings_.expandable_segments) {
    // A piece counts with the unmapped addresses behind it, into which it can grow.
    const auto growable = [](const Piece* piece) {
      return piece->size + (piece->next != nullptr && !piece->next->mapped ? piece->next->size : 0);
    };
    for (auto next = std::next(found);
         next != pool.free.end() && (*next)->stream == stream && growable(*next) < growable(*found); ++next)
      found = next;
  }
  Piece* const piece = *found;
  const uint64_t unsplit = settings_.max_split_bytes;
  if (size < unsplit && piece->size >= unsplit) return nullptr;
  if (size >= unsplit && piece->size - size >= settings_.most_non_split_rounding) return nullptr;
  pool.free.erase(found);
  return piece;
}

TorchModel::Piece* TorchModel::new_memory(Pool& pool, uint64_t size, uint32_t stream) {
  return settings_.expandable_segments ? expand(pool, size, stream) : new_segment(pool, size, stream);
}

TorchModel::Piece* TorchModel::new_segment(Pool& pool, uint64_t size, uint32_t stream) {
  const uint64_t bytes = pool.small           ? kSmallSegment
                         : size < kOwnSegment ? settings_.large_segment_bytes
                                              : (size + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit;
  if (bytes > capacity_ - std::min(capacity_, reserved_)) return nullptr;
  Piece piece;
  piece.pool = &pool;
  piece.address = piece.base = addresses_.take(bytes + kSegmentUnit);
  piece.size = bytes;
  piece.segment = ++segments_;
  piece.stream = stream;
  hold(pool, stream, piece.address, bytes);
  return new_piece(piece);
}

void TorchModel::hold(const Pool& pool, uint32_t stream, uint64_t address, uint64_t bytes) {
  reserved_ += bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  if (observer_ != nullptr) observer_->memory_taken({stream, pool.number, pool.small}, address, bytes);
}

void TorchModel::give_back(const Pool& pool, uint32_t stream, uint64_t address, uint64_t bytes) {
  reserved_ -= bytes;
  if (observer_ != nullptr) observer_->memory_given_back({stream, pool.number, pool.small}, address, bytes);
}

bool TorchModel::should_split(const Piece& piece, uint64_t size) const {
  const uint64_t rest = piece.size - size;
  if (piece.pool->small || settings_.expandable_segments) return rest >= kUnit;
  return size < settings_.max_split_bytes && rest > kLeastLargeRest;
}

// The front becomes the block, the rest stays free.
TorchModel::Piece* TorchModel::split(Piece* piece, uint64_t size) {
  Piece* const front = new_piece(*piece);
  front->size = size;
  front->next = piece;
  if (front->previous != nullptr) front->previous->next = front;
  piece->previous = front;
  piece->address += size;
  piece->size -= size;
  piece->pool->free.insert(piece);
  return front;
}

void TorchModel::put_free(Piece* piece) {
  piece->used = false;
  merge(piece, piece->previous);
  merge(piece, piece->next);
  piece->pool->free.insert(piece);
}

// `piece` itself is in no set.
void TorchModel::merge(Piece* piece, Piece* with) {
  if (with == nullptr || with->used || with->mapped != piece->mapped) return;
  if (with->mapped)
    with->pool->free.erase(with);
  else
    with->pool->unmapped.erase(with);
  if (piece->previous == with) {
    piece->address = with->address;
    piece->previous = with->previous;
    if (piece->previous != nullptr) piece->previous->next = piece;
  } else {
    piece->next = with->next;
    if (piece->next != nullptr) piece->next->previous = piece;
  }
  piece->size += with->size;
  drop(with);
}

// With a largest size to split, a cached block of that size or more, or several, go before all others.
bool TorchModel::release_enough(Pool& pool, uint64_t size, uint32_t stream) {
  if (settings_.max_split_bytes == UINT64_MAX) return false;
  Piece key;
  key.stream = stream;
  key.size = std::max(size, settings_.max_split_bytes);
  auto found = pool.free.lower_bound(&key);
  if (found != pool.free.end() && (*found)->stream == stream) {
    if (!(*found)->whole()) return false;
    release_segment(*found);
    return true;
  }
  uint64_t released = 0;
  while (released < key.size && found != pool.free.begin()) {
    --found;
    Piece* const largest = *found;
    if (largest->size < settings_.max_split_bytes || largest->stream != stream || !largest->whole()) break;
    released += largest->size;
    ++found;
    release_segment(largest);
  }
  return released >= key.size;
}

void TorchModel::release_cached() {
  complete_pending();
  // A private pool keeps its memory for the graphs that were captured in it.
  for (auto& halves : pools_)
    for (Pool& pool : halves)
      if (!pool.is_private) release(pool);
}

void TorchModel::release(Pool& pool) {
  const std::vector<Piece*> free(pool.free.begin(), pool.free.end());
  for (Piece* const piece : free) {
    if (settings_.expandable_segments)
      unmap(piece);
    else if (piece->whole())
      release_segment(piece);
  }
}

void TorchModel::release_segment(Piece* piece) {
  piece->pool->free.erase(piece);
  addresses_.give(piece->address, piece->size + kSegmentUnit);
  give_back(*piece->pool, piece->stream, piece->address, piece->size);
  drop(piece);
}

}  // namespace spillway::tools
