// With expandable segments: one segment for each stream and pool, as long as the card and an eighth more, of
// which whole handles are mapped where they are needed.
#include <algorithm>

#include "tools/spillway/replay/torch/torch_model.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kSmallHandle = uint64_t{2} << 20;

uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

uint64_t TorchModel::handle_bytes(const Pool& pool) const {
  return pool.small ? kSmallHandle : settings_.large_segment_bytes;
}

TorchModel::Piece* TorchModel::expand(Pool& pool, uint64_t size, uint32_t stream) {
  Piece* piece = find_expandable(pool, size, stream);
  if (piece == nullptr) return nullptr;
  if (!piece->mapped && !map(piece, std::min(piece->size, size))) return nullptr;
  // The piece is free, and unmapped addresses follow it; they join it as they are mapped.
  while (piece->size < size) {
    Piece* const behind = piece->next;
    if (behind == nullptr || !map(behind, std::min(size - piece->size, behind->size))) return nullptr;
    piece = behind;
  }
  pool.free.erase(piece);
  return piece;
}

// The lowest place with enough addresses that are free or unmapped, else a new segment.
TorchModel::Piece* TorchModel::find_expandable(Pool& pool, uint64_t size, uint32_t stream) {
  const auto has_room = [size](const Piece* piece) {
    uint64_t bytes = 0;
    for (; bytes < size && piece != nullptr && !piece->used; piece = piece->next) bytes += piece->size;
    return bytes >= size;
  };
  Piece key;
  key.stream = stream;
  for (auto it = pool.unmapped.lower_bound(&key); it != pool.unmapped.end() && (*it)->stream == stream;
       ++it) {
    Piece* place = *it;
    if (place->previous != nullptr && !place->previous->used) place = place->previous;
    if (has_room(place)) return place;
  }
  Piece segment;
  segment.pool = &pool;
  segment.stream = stream;
  segment.size = round_up(capacity_ + capacity_ / 8, handle_bytes(pool));
  segment.mapped = false;
  if (size > segment.size) return nullptr;
  segment.address = segment.base = addresses_.take(segment.size);
  Piece* const made = new_piece(segment);
  pool.unmapped.insert(made);
  return made;
}

// Maps whole handles from the beginning of `piece`, all that `size` takes or none.
bool TorchModel::map(Piece* piece, uint64_t size) {
  Pool& pool = *piece->pool;
  const uint64_t bytes = round_up(size, handle_bytes(pool));
  if (bytes > capacity_ - std::min(capacity_, reserved_)) return false;
  pool.unmapped.erase(piece);
  hold(pool, piece->stream, piece->address, bytes);
  piece->mapped = true;
  if (bytes < piece->size) {
    Piece rest = *piece;
    rest.mapped = false;
    rest.address += bytes;
    rest.size -= bytes;
    rest.previous = piece;
    Piece* const made = new_piece(rest);
    if (made->next != nullptr) made->next->previous = made;
    piece->next = made;
    piece->size = bytes;
    pool.unmapped.insert(made);
  }
  merge(piece, piece->previous);
  merge(piece, piece->next);
  pool.free.insert(piece);
  return true;
}

// Gives back the whole handles inside a free piece; what is left before and behind them stays free.
void TorchModel::unmap(Piece* piece) {
  Pool& pool = *piece->pool;
  const uint64_t unit = handle_bytes(pool);
  const uint64_t base = piece->base;
  const uint64_t begin = base + round_up(piece->address - base, unit);
  const uint64_t end = base + (piece->address + piece->size - base) / unit * unit;
  if (begin >= end) return;
  pool.free.erase(piece);
  const uint64_t before = begin - piece->address, behind = piece->address + piece->size - end;
  if (before > 0) {
    Piece* const kept = new_piece(*piece);
    kept->size = before;
    kept->next = piece;
    if (kept->previous != nullptr) kept->previous->next = kept;
    piece->previous = kept;
    pool.free.insert(kept);
  }
  if (behind > 0) {
    Piece* const kept = new_piece(*piece);
    kept->address = end;
    kept->size = behind;
    kept->previous = piece;
    if (kept->next != nullptr) kept->next->previous = kept;
    piece->next = kept;
    pool.free.insert(kept);
  }
  piece->address = begin;
  piece->size = end - begin;
  piece->mapped = false;
  give_back(pool, piece->stream, begin, end - begin);
  merge(piece, piece->previous);
  merge(piece, piece->next);
  if (!piece->whole()) return void(pool.unmapped.insert(piece));
  addresses_.give(piece->address, piece->size);
  drop(piece);
}

}  // namespace spillway::tools
