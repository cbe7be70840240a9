// PyTorch's caching allocator, native and with expandable segments, as a model of where it places blocks: no
// driver, no streams, no locks. docs/replay.md says against what it is checked.
//
// A block is a piece of a segment; the pieces of a segment are chained by address. Free pieces are kept by
// (stream, size, segment, address), segments in the order in which they came, and the first that fits is
// taken, whole or split. Without one a segment is asked of the card, or with expandable segments pages are
// mapped where the stream's one segment has none. If the card has no room, what is cached and wholly free is
// given back, and the card is asked once more.
//
// Thread-safety, ownership, errors and units are those of Placement.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tools/spillway/replay/placement.h"
#include "tools/spillway/replay/recorder.h"
#include "tools/spillway/replay/torch/torch_settings.h"

namespace spillway::tools {

class TorchModel final : public Placement {
 public:
  // `capacity`: what the allocator may hold. `observer` may be null.
  TorchModel(TorchSettings settings, uint64_t capacity, PlacementObserver* observer = nullptr);
  bool allocate(uint32_t block, uint64_t bytes, uint32_t stream, uint32_t pool) override;
  void free_later(uint32_t block) override;
  void free(uint32_t block) override;
  uint64_t reserved() const override { return reserved_; }
  uint64_t most_reserved() const override { return most_reserved_; }
  uint64_t largest_free(uint32_t stream, uint32_t pool, bool small) const override;

 private:
  struct Pool;
  struct Piece {
    Pool* pool = nullptr;
    uint64_t address = 0, size = 0;
    uint64_t base = 0;     // where its segment begins
    uint64_t segment = 0;  // its number, in the order in which the card gave them; 0 of an expandable one
    uint32_t stream = 0;
    bool used = false, mapped = true;
    Piece* previous = nullptr;
    Piece* next = nullptr;
    bool whole() const { return previous == nullptr && next == nullptr; }
  };
  struct BySize {
    bool operator()(const Piece* a, const Piece* b) const;
  };
  struct ByAddress {
    bool operator()(const Piece* a, const Piece* b) const;
  };
  struct Pool {
    bool small = false, is_private = false;
    uint32_t number = 0;
    std::set<Piece*, BySize> free;
    std::set<Piece*, ByAddress> unmapped;  // with expandable segments only
  };
  // The addresses that the card gives: the lowest that fit, as the simulated driver does.
  class Addresses {
   public:
    uint64_t take(uint64_t bytes);
    void give(uint64_t address, uint64_t bytes);

   private:
    std::map<uint64_t, uint64_t> free_{{uint64_t{1} << 40, uint64_t{1} << 62}};  // by where each begins
  };

  Pool& pool_of(uint32_t pool, bool small);
  Piece* new_piece(Piece piece);
  void drop(Piece* piece) { spare_.push_back(piece); }
  Piece* find_free(Pool& pool, uint64_t size, uint32_t stream);
  Piece* new_memory(Pool& pool, uint64_t size, uint32_t stream);
  Piece* new_segment(Pool& pool, uint64_t size, uint32_t stream);
  bool should_split(const Piece& piece, uint64_t size) const;
  Piece* split(Piece* piece, uint64_t size);
  void put_free(Piece* piece);
  void merge(Piece* piece, Piece* with);
  void complete_pending();
  bool release_enough(Pool& pool, uint64_t size, uint32_t stream);
  void release_cached();
  void release(Pool& pool);
  void release_segment(Piece* piece);
  void hold(const Pool& pool, uint32_t stream, uint64_t address, uint64_t bytes);
  void give_back(const Pool& pool, uint32_t stream, uint64_t address, uint64_t bytes);

  // torch_expandable.cpp
  Piece* expand(Pool& pool, uint64_t size, uint32_t stream);
  Piece* find_expandable(Pool& pool, uint64_t size, uint32_t stream);
  bool map(Piece* piece, uint64_t size);
  void unmap(Piece* piece);
  uint64_t handle_bytes(const Pool& pool) const;

  const TorchSettings settings_;
  const uint64_t capacity_;
  PlacementObserver* const observer_;
  uint64_t reserved_ = 0, most_reserved_ = 0, segments_ = 0;
  Addresses addresses_;
  std::deque<std::array<Pool, 2>> pools_;  // by number: large, small
  std::deque<Piece> pieces_;
  std::vector<Piece*> spare_;
  std::vector<Piece*> blocks_;  // by number; null: not live
  std::vector<uint32_t> pending_;
};

}  // namespace spillway::tools
