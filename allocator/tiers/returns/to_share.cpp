// A block that other processes are to share must lie on the device: what lies in another tier comes back now,
// on pages for which the ladder may make room.
#include "allocator/tiers/returns/block_returns.h"

namespace spillway {
namespace {

// Until nothing uses the device.
constexpr auto kMostWait = std::chrono::seconds(5);
constexpr const char* kPinned = "it is pinned where it lies";

Status because(Status status, const char* why, FailurePtr* failure) {
  *failure = std::make_unique<Failure>();
  (*failure)->text = why;
  return status;
}

}  // namespace

bool BlockReturns::is_pinned(const Block* block) const {
  return heap_.shared.pinned().cover(block->address, block->size);
}

// Of a registered block, what lies in a file comes first, and stays while the block counts as used.
Status BlockReturns::return_to_share(Block* block, uint64_t address, FailurePtr* failure) {
  if (inside_handler)
    return because(Status::kInvalid, "nothing can be moved from inside a strategy", failure);
  const Status touched = touch(block, address, failure);
  if (touched != Status::kOk && touched != Status::kNotFound) return touched;
  const Status status = return_pieces(block, address, failure);
  if (touched == Status::kOk) done(block, address);
  return status;
}

Status BlockReturns::return_pieces(Block* block, uint64_t address, FailurePtr* failure) {
  const Device::Scope scope(*heap_.device);
  note_use(block, address);
  std::optional<Piece> piece;
  Status status = claim_last(block, address, From::kAnywhere, &piece);
  while (status == Status::kOk && piece) {
    status = return_piece(block, *piece, failure);
    if (status == Status::kOk) status = claim_last(block, address, From::kAnywhere, &piece);
  }
  if (status == Status::kNotFound) return because(status, "the block was freed meanwhile", failure);
  return status;
}

// Of a block that was claimed; nobody has it claimed afterwards.
Status BlockReturns::return_piece(Block* block, const Piece& piece, FailurePtr* failure) {
  const uint64_t bytes = piece.range.bytes();
  Miss miss = requests_.pages_for(bytes, stream_of(block));
  std::vector<Move> moves{{.block = block, .range = piece.range, .was = piece.tier, .from = piece.pages}};
  Status status =
      is_pinned(block) ? because(Status::kInvalid, kPinned, failure) : requests_.get_pages(miss, failure);
  if (status == Status::kOk)
    status = move_at_rest(block, moves, miss, failure);
  else
    migration_.end(block);
  requests_.release(miss);
  return status;
}

Status BlockReturns::move_at_rest(Block* block, std::vector<Move>& moves, Miss& miss, FailurePtr* failure) {
  OomHandler* handler = heap_.shared.handler.load();
  bool moved = false, pinned = false;
  const auto move = [&] {
    pinned = is_pinned(block);  // nobody pins while all is at rest
    if (pinned) return;
    unspiller_.move_in(moves, &miss.pages);
    moved = true;
  };
  const bool rested =
      handler != nullptr && handler->at_rest(move, std::chrono::steady_clock::now() + kMostWait);
  if (!moved) migration_.end(block);
  if (!rested)
    return because(Status::kInvalid, "launches cannot be held, or the device does not come to rest", failure);
  if (pinned) return because(Status::kInvalid, kPinned, failure);
  if (!moves.front().done)
    return because(Status::kDriverFailed, "the driver refused to exchange its pages", failure);
  return Status::kOk;
}

}  // namespace spillway
