// A block that other processes are to share must lie on the device: what lies in another tier comes back now,
// on pages for which the ladder may make room.
#include <chrono>
#include <thread>

#include "allocator/tiers/before_use/block_returns.h"

namespace spillway {
namespace {

constexpr auto kBetweenLooks = std::chrono::microseconds(50);
// Until nothing uses the device.
constexpr auto kMostWait = std::chrono::seconds(5);
constexpr const char* kPinned = "it, or a block on its page, is pinned where it lies";

Status because(Status status, const char* why, FailurePtr* failure) {
  *failure = std::make_unique<Failure>();
  (*failure)->text = why;
  return status;
}

}  // namespace

bool BlockReturns::is_pinned(AddressRange range) const {
  return heap_.shared.pinned().cover(range.begin, range.bytes());
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
  std::optional<Move> move;
  Status status = claim_next(block, address, &move);
  while (status == Status::kOk && move) {
    status = return_piece(block, *move, failure);
    if (status == Status::kOk) status = claim_next(block, address, &move);
  }
  if (status == Status::kNotFound) return because(status, "the block was freed meanwhile", failure);
  return status;
}

// The block's last piece, else one that it has in common with others.
Status BlockReturns::claim_next(Block* block, uint64_t address, std::optional<Move>* move) {
  move->reset();
  std::optional<Piece> piece;
  const Status status = claim_last(block, address, From::kAnywhere, &piece);
  if (status != Status::kOk || !piece)
    return status == Status::kOk ? claim_common(block, address, move) : status;
  *move = Move{.block = block, .range = piece->range, .was = piece->tier, .from = piece->pages};
  return status;
}

// None of these blocks may be on its way. One that is freed leaves soon, and nobody tells of that.
Status BlockReturns::claim_common(Block* block, uint64_t address, std::optional<Move>* move) {
  for (;; std::this_thread::sleep_for(kBetweenLooks)) {
    const Locked guard(heap_.lock);
    if (!heap_.is_live(block, address)) return Status::kNotFound;
    const SpilledBlocks& spilled = heap_.tiers.spilled;
    const SpilledBlocks::Spilled* there = spilled.find(block);
    if (there == nullptr || (!there->moving && there->common.empty())) return Status::kOk;
    if (there->moving || spilled.any_moving(spilled.common().at(there->common.back()))) continue;
    *move = return_of(spilled.common().at(there->common.back()));
    heap_.tiers.spilled.begin_moves({**move});
    return Status::kOk;
  }
}

// Of blocks that were claimed; nobody has them claimed afterwards.
Status BlockReturns::return_piece(Block* block, Move move, FailurePtr* failure) {
  Miss miss = requests_.pages_for(move.range.bytes(), stream_of(block));
  std::vector<Move> moves{std::move(move)};
  Status status = is_pinned(moves.front().range) ? because(Status::kInvalid, kPinned, failure)
                                                 : requests_.get_pages(miss, failure);
  if (status == Status::kOk)
    status = move_at_rest(moves, miss, failure);
  else
    migration_.end(moves);
  requests_.release(miss);
  return status;
}

Status BlockReturns::move_at_rest(std::vector<Move>& moves, Miss& miss, FailurePtr* failure) {
  OomHandler* handler = heap_.shared.handler.load();
  bool moved = false, pinned = false;
  const auto move = [&] {
    pinned = is_pinned(moves.front().range);  // nobody pins while all is at rest
    if (pinned) return;
    unspiller_.move_in(moves, &miss.pages);
    moved = true;
  };
  const bool rested =
      handler != nullptr && handler->at_rest(move, std::chrono::steady_clock::now() + kMostWait);
  if (!moved) migration_.end(moves);
  if (!rested)
    return because(Status::kInvalid, "launches cannot be held, or the device does not come to rest", failure);
  if (pinned) return because(Status::kInvalid, kPinned, failure);
  if (!moves.front().done)
    return because(Status::kDriverFailed, "the driver refused to exchange its pages", failure);
  return Status::kOk;
}

}  // namespace spillway
