// Brings back what the program is about to use or to share: from a file when it says that it uses a
// registered block, from any tier before other processes map it. The handler may make room for it.
//
// Thread-safety: any thread, without the heap's lock. Errors: a status, and the failure where one is asked
// for; what could not come back can be asked for again. Units: bytes.
#pragma once
#include <optional>

#include "allocator/request/request_path.h"
#include "allocator/tiers/unspiller.h"

namespace spillway {

class BlockReturns {
 public:
  BlockReturns(HeapState& heap, RequestPath& requests, TierMemory& memory, Migration& migration,
               FileCopies& file, Unspiller& unspiller)
      : heap_(heap),
        requests_(requests),
        memory_(memory),
        migration_(migration),
        file_(file),
        unspiller_(unspiller) {}

  // registered_use.cpp: blocks of which the program says when it uses them; see Allocator.
  Status add(Block* block, uint64_t address, uint64_t bytes);
  Status touch(Block* block, uint64_t address, FailurePtr* failure);
  Status done(Block* block, uint64_t address);
  Status remove(Block* block, uint64_t address, FailurePtr* failure);

  // before_sharing.cpp: the whole block, from any tier.
  Status return_to_share(Block* block, uint64_t address, FailurePtr* failure);
  // A block like any other is used.
  void note_use(Block* block, uint64_t address, const BlockAccess& access = {});

 private:
  // Where a piece may lie that is to come back.
  enum class From : uint8_t { kFile, kAnywhere };
  Status claim_last(Block* block, uint64_t address, From from, std::optional<Piece>* piece);
  StreamId stream_of(const Block* block);

  // from_file.cpp
  Status return_from_file(Block* block, uint64_t address, FailurePtr* failure);
  Status return_piece_from_file(Block* block, const Piece& piece, FailurePtr* failure);
  Status map_behind(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure);
  Status fill(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure);
  void unmap_behind(Block* block, const Piece& piece, Miss& miss);
  void settle(Block* block, const Piece& piece);

  Status return_pieces(Block* block, uint64_t address, FailurePtr* failure);
  Status claim_next(Block* block, uint64_t address, std::optional<Move>* move);
  Status claim_common(Block* block, uint64_t address, std::optional<Move>* move);
  Status return_piece(Block* block, Move move, FailurePtr* failure);
  Status move_at_rest(std::vector<Move>& moves, Miss& miss, FailurePtr* failure);
  bool is_pinned(AddressRange range) const;

  HeapState& heap_;
  RequestPath& requests_;
  TierMemory& memory_;
  Migration& migration_;
  FileCopies& file_;
  Unspiller& unspiller_;
};

}  // namespace spillway
