// A block that other processes are to share must lie on the device: what lies in another tier comes back now,
// on pages for which the ladder may make room.

#include "allocator/heap.h"

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

// What lies in another tier comes back first. Between that and the sharing it may go again.
Status DeviceHeap::share(Block* block, uint64_t address, SharedBlock* out, std::string* text) {
  constexpr int kMostReturns = 3;
  if (forked()) return Status::kUnavailable;
  for (int returns = 0;; ++returns) {
    Status status = share_here(block, address, out, text);
    if (status != Status::kInvalid || returns == kMostReturns) return status;
    FailurePtr failure;
    status = unspill_to_share(block, address, &failure);
    if (status == Status::kOk) continue;
    *text = "the block's memory was moved to another tier and can not come back to be shared";
    if (failure != nullptr) *text += ": " + failure->text;
    return status;
  }
}

// Of a registered block, what lies in a file comes first, and stays while the block counts as used.
Status DeviceHeap::unspill_to_share(Block* block, uint64_t address, FailurePtr* failure) {
  if (inside_handler)
    return because(Status::kInvalid, "nothing can be moved from inside a strategy", failure);
  const Status touched = touch_block(block, address, failure);
  if (touched != Status::kOk && touched != Status::kNotFound) return touched;
  const Status status = return_pieces(block, address, failure);
  if (touched == Status::kOk) done_block(block, address);
  return status;
}

Status DeviceHeap::return_pieces(Block* block, uint64_t address, FailurePtr* failure) {
  const Device::Scope scope(*device_);
  touch(block, address);
  std::optional<Piece> piece;
  Status status = claim_return(block, address, Return::kFromAnywhere, &piece);
  while (status == Status::kOk && piece) {
    status = return_piece(block, *piece, failure);
    if (status == Status::kOk) status = claim_return(block, address, Return::kFromAnywhere, &piece);
  }
  pinned_host_cache_.shrink(0);
  if (status == Status::kNotFound) return because(status, "the block was freed meanwhile", failure);
  return status;
}

// Of a block that was claimed; nobody has it claimed afterwards.
Status DeviceHeap::return_piece(Block* block, const Piece& piece, FailurePtr* failure) {
  const uint64_t bytes = piece.range.bytes();
  Miss miss{.request = {.bytes = bytes, .stream = stream_of(block)},
            .size = bytes,
            .reservation = PageReservation(page_bytes_),
            .returning = block};
  std::vector<Move> moves{
      {.block = block, .range = piece.range, .was = piece.tier, .from = {{piece.handle, bytes}}}};
  OomHandler* handler = allocator_.handler_.load();
  const auto is_pinned = [&] { return allocator_.pins().cover(block->address, block->size); };
  bool moved = false, pinned = is_pinned();
  Status status = pinned ? because(Status::kInvalid, kPinned, failure) : get_pages(miss, failure);
  if (status == Status::kOk) {
    const auto move = [&] {
      pinned = is_pinned();  // nobody pins while all is at rest
      if (pinned) return;
      move_in(moves, miss.reservation);
      moved = true;
    };
    if (handler == nullptr || !handler->at_rest(move, std::chrono::steady_clock::now() + kMostWait))
      status =
          because(Status::kInvalid, "launches can not be held, or the device does not come to rest", failure);
    else if (pinned)
      status = because(Status::kInvalid, kPinned, failure);
    else if (!moves.front().done)
      status = because(Status::kDriverFailed, "the driver refused to exchange its pages", failure);
  }
  if (!moved) end_move(block);
  release_reservation(miss);
  return status;
}

}  // namespace spillway
