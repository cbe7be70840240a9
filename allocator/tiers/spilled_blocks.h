// Blocks of which pages lie in another tier, or are on their way there or back.
//
// A block's pieces lie at its end, the last that went in front; those that have come back leave gaps. Pages
// on which several blocks lie go and come back whole, as a common piece of these blocks; it stays until the
// last of them is freed. While a block moves, or its pages are taken away for good, one thread has it claimed
// and nobody else changes its pieces. A block that is freed meanwhile goes when the move has ended.
//
// Thread-safety: guarded by the heap's lock. Ownership: names memory; TierMemory gives it back. Errors: none.
// Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
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

// A part of a block that goes from one tier to another, or pages of several blocks.
struct Move {
  Block* block = nullptr;
  bool common = false;  // of a common piece, on which these lie too
  std::vector<Block*> others{};
  AddressRange range;
  Tier tier = Tier::kDevice, was = Tier::kDevice;
  DeviceId peer{};  // where `tier` is kPeer
  std::vector<driver::Page> from{}, to{};
  std::vector<PageFile::Stored> stored{};  // where `tier` is kNvme
  bool done = false;
};

uint64_t bytes_of(const std::vector<Move>& moves);
std::vector<Block*> blocks_of(const Move& move);
// Of the block, in the range.
uint64_t bytes_in(const Block* block, AddressRange range);

class SpilledBlocks {
 public:
  struct Spilled {
    std::vector<Piece> pieces;
    std::vector<uint64_t> common{};  // where the common pieces begin that it lies on
    bool moving = false;
    bool freed = false;  // nothing uses it any more
    bool told = false;   // that it is free
  };
  using Map = std::unordered_map<Block*, Spilled>;
  struct CommonPiece {
    Piece piece;                 // kHost
    std::vector<Block*> blocks;  // by address; freed ones that are past all work have left it
  };
  using CommonPieces = std::map<uint64_t, CommonPiece>;  // by where they begin

  explicit SpilledBlocks(AllocatorContext& shared) : shared_(shared) {}

  bool empty() const { return blocks_.empty(); }
  bool contains(Block* block) const { return blocks_.contains(block); }
  const Map& all() const { return blocks_; }
  Spilled* find(Block* block);  // null: it lies on the device
  const Spilled* find(Block* block) const { return const_cast<SpilledBlocks*>(this)->find(block); }
  Spilled& at(Block* block) { return blocks_.at(block); }
  const CommonPieces& common() const { return common_; }
  bool any_moving(const CommonPiece& common) const;

  // Nothing may free the pages from here on: who frees the block leaves it to the end of the move.
  void begin_moves(const std::vector<Move>& moves);
  // A block that lies whole on the device again is like any other. True: it was freed meanwhile, and is the
  // caller's to free.
  [[nodiscard]] bool end_move(Block* block);

  // What went by that move.
  void add(const Move& move);
  // What begins where the move does has come back.
  void remove(const Move& move);
  // A piece that a peer had is in host memory.
  void went_to_host(const Move& move);
  // Of a freed block: the piece is mapped no more, and its memory serves others.
  void note_gone(Piece& piece);

  // Nothing uses the block any more: whether the caller can free it at once.
  [[nodiscard]] bool claim_freed(Block* block);
  std::vector<Block*> claim_all_freed();
  bool any_freed() const;
  // Of a freed block that is claimed: common pieces on which no other block lies any more become its own.
  // False: there are none.
  bool adopt_common(Block* block);
  // The block's pieces, which no longer count; and it has left its common ones.
  std::vector<Piece> forget(Block* block);
  // All pieces, each once, with a block that lies there.
  std::vector<std::pair<Block*, Piece>> forget_all();

  // Of blocks; and of memory in a tier, with what is in no use on common pieces.
  uint64_t bytes() const { return bytes_; }
  uint64_t bytes(Tier tier) const;
  // Of blocks that wait for other streams.
  uint64_t pending_bytes() const;
  // What lies in another tier is none of this device's memory. `spilled` has what of it is in use: a freed
  // block that waits for other work is not.
  void leave_out(Memory* out) const;
  // The same as `bytes`, added up anew.
  uint64_t sum() const;
  // Calls `visit(block, piece)` for each piece, of a common one for each of its blocks.
  template <typename Visit>
  void each_piece(Visit visit) const {
    for (const auto& [block, there] : blocks_) {
      for (const Piece& piece : there.pieces) visit(block, piece);
      for (const uint64_t begin : there.common) visit(block, common_.at(begin).piece);
    }
  }

 private:
  void uncount(const Piece& piece);

  AllocatorContext& shared_;
  Map blocks_;
  CommonPieces common_;
  uint64_t bytes_ = 0;
};

// To the device.
Move return_of(const SpilledBlocks::CommonPiece& common);

}  // namespace spillway
