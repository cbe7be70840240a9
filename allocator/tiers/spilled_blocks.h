// Blocks of which pages lie in another tier, or are on their way there or back.
//
// A block's pieces lie at its end, the last that went in front; those that have come back leave gaps. While a
// block moves, or its pages are taken away for good, one thread has it claimed and nobody else changes its
// pieces. A block that is freed meanwhile goes when the move has ended.
//
// Thread-safety: guarded by the heap's lock. Ownership: names memory; TierMemory gives it back. Errors: none.
// Units: bytes.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allocator/accounting/memory.h"
#include "allocator/context.h"
#include "allocator/tiers/file/page_file.h"
#include "allocator/tiling/arena.h"
#include "allocator/units.h"
#include "driver/mapping.h"

namespace spillway {

// Where a part of a live block lies.
struct Piece {
  AddressRange range;
  std::vector<driver::Page> pages{};  // one after the other; kNvme: none
  Tier tier = Tier::kHost;
  DeviceId peer{};                         // kPeer
  std::vector<PageFile::Stored> stored{};  // kNvme
  bool gone = false;                       // of a freed block: it is not mapped any more
  bool mapped = false;                     // kNvme: there are pages for its bytes again
};

// A part of a block that goes from one tier to another.
struct Move {
  Block* block = nullptr;
  AddressRange range;
  Tier tier = Tier::kDevice, was = Tier::kDevice;
  DeviceId peer{};  // where `tier` is kPeer
  std::vector<driver::Page> from{}, to{};
  std::vector<PageFile::Stored> stored{};  // where `tier` is kNvme
  bool done = false;
};

uint64_t bytes_of(const std::vector<Move>& moves);

class SpilledBlocks {
 public:
  struct Spilled {
    std::vector<Piece> pieces;
    bool moving = false;
    bool freed = false;  // nothing uses it any more
  };
  using Map = std::unordered_map<Block*, Spilled>;

  explicit SpilledBlocks(AllocatorContext& shared) : shared_(shared) {}

  bool empty() const { return blocks_.empty(); }
  bool contains(Block* block) const { return blocks_.contains(block); }
  const Map& all() const { return blocks_; }
  Spilled* find(Block* block);  // null: it lies on the device
  const Spilled* find(Block* block) const { return const_cast<SpilledBlocks*>(this)->find(block); }
  Spilled& at(Block* block) { return blocks_.at(block); }

  // Nothing may free the pages from here on: who frees the block leaves it to the end of the move.
  void begin_moves(const std::vector<Move>& moves);
  // A block that lies whole on the device again is like any other. True: it was freed meanwhile, and is the
  // caller's to free.
  [[nodiscard]] bool end_move(Block* block);

  void add(Block* block, const Piece& piece);
  // The piece that begins there has come back.
  void remove(Block* block, uint64_t begin);
  // A piece that a peer had is in host memory.
  void went_to_host(const Move& move);
  // Of a freed block: the piece is mapped no more, and its memory serves others.
  void note_gone(Piece& piece);

  // Nothing uses the block any more: whether the caller can free it at once.
  [[nodiscard]] bool claim_freed(Block* block);
  std::vector<Block*> claim_all_freed();
  bool any_freed() const;
  // The block's pieces, which no longer count.
  std::vector<Piece> forget(Block* block);
  Map forget_all();

  uint64_t bytes() const { return bytes_; }
  uint64_t bytes(Tier tier) const;
  // Of blocks that wait for other streams.
  uint64_t pending_bytes() const;
  // What lies in another tier is none of this device's memory. `spilled` has what of it is in use: a freed
  // block that waits for other work is not.
  void leave_out(Memory* out) const;
  // The same as `bytes`, added up anew.
  uint64_t sum() const;

 private:
  void uncount(const Piece& piece);

  AllocatorContext& shared_;
  Map blocks_;
  uint64_t bytes_ = 0;  // of all pieces
};

}  // namespace spillway
