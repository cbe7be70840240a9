// What lies in a file comes back: on device pages for which the ladder may make room, before the program uses
// the block.
#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "allocator/heap.h"

namespace spillway {
namespace {

std::string file_text(int error) {
  if (error == EBADMSG) return "its bytes are not those that were written";
  if (error == ENODATA) return "the file has become shorter";
  return std::generic_category().message(error);
}

}  // namespace

// The last piece of the block, if it lies where it is asked for back from: from here on nobody else moves it.
// A move is waited for, but not what takes a freed block's memory away: that would be no touch of it.
Status DeviceHeap::claim_return(Block* block, uint64_t address, Return what, std::optional<Piece>* piece) {
  piece->reset();
  for (;;) {
    const uint32_t ended = moves_ended_.load();
    {
      const Locked guard(lock_);
      if (block->address != address || block->state != BlockState::kLive) return Status::kNotFound;
      const auto there = spilled_.find(block);
      if (there == spilled_.end()) return Status::kOk;
      if (!there->second.moving) {
        const std::vector<Piece>& pieces = there->second.pieces;
        if (pieces.empty() || (what == Return::kFromFile && pieces.back().tier != Tier::kNvme))
          return Status::kOk;
        there->second.moving = true;
        *piece = pieces.back();
        return Status::kOk;
      }
    }
    moves_ended_.wait(ended);
  }
}

Status DeviceHeap::unspill_from_file(Block* block, uint64_t address, FailurePtr* failure) {
  const Device::Scope scope(*device_);
  std::optional<Piece> piece;
  Status status = claim_return(block, address, Return::kFromFile, &piece);
  while (status == Status::kOk && piece) {
    status = unspill_piece_from_file(block, *piece, failure);
    end_move(block);
    if (status == Status::kOk) status = claim_return(block, address, Return::kFromFile, &piece);
  }
  return status;
}

StreamId DeviceHeap::stream_of(const Block* block) {
  const Locked guard(lock_);
  return arenas_[block->arena]->stream();
}

// The way of a request that no hole fits, for pages alone.
Status DeviceHeap::get_pages(Miss& miss, FailurePtr* failure) {
  Served served = serve(miss);
  if (served == Served::kShort && release_singles(kEveryPool) != 0) served = serve(miss);
  if (served == Served::kFailed) return driver_failure(miss, failure);
  learn_under_pressure(served == Served::kShort);
  return served == Served::kShort ? run_handler(miss, failure) : Status::kOk;
}

Status DeviceHeap::unspill_piece_from_file(Block* block, const Piece& piece, FailurePtr* failure) {
  Miss miss{.request = {.bytes = piece.range.bytes(), .stream = stream_of(block)},
            .size = piece.range.bytes(),
            .reservation = PageReservation(page_bytes_),
            .returning = block};
  Status status = piece.mapped ? Status::kOk : get_pages(miss, failure);
  if (status == Status::kOk && !piece.mapped) status = map_behind(block, piece, miss, failure);
  if (status == Status::kOk) status = fill_from_file(block, piece, miss, failure);
  release_reservation(miss);
  return status;
}

// The reservation's pages are the arena's from here on, though their bytes are still to come.
Status DeviceHeap::map_behind(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure) {
  std::vector<CUmemGenericAllocationHandle>& at_hand = miss.reservation.pages;
  const uint64_t count = piece.range.bytes() / page_bytes_;
  std::vector<driver::Page> pages(count, {0, page_bytes_});
  for (uint64_t i = 0; i < count; ++i) pages[i].handle = at_hand[i];
  const SharedLocked mapping(mappings_mutex_);
  miss.error = device_->map(piece.range.begin, pages);
  miss.call = "bringing memory back from a file";
  if (miss.error != CUDA_SUCCESS) return driver_failure(miss, failure);
  const Locked guard(lock_);
  at_hand.erase(at_hand.begin(), at_hand.begin() + static_cast<std::ptrdiff_t>(count));
  for (uint64_t i = 0; i < count; ++i)
    arenas_[block->arena]->set_page(piece.range.begin + i * page_bytes_, pages[i].handle);
  mapped_bytes_ += piece.range.bytes();
  reserved_bytes_ -= piece.range.bytes();
  spilled_[block].pieces.back().mapped = true;
  return Status::kOk;
}

// What the file has goes to the pages behind the block. What can not be read leaves the piece in the file.
Status DeviceHeap::fill_from_file(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure) {
  const int error = read_from_file(piece);
  if (error == 0) {
    settle_unspilled(block);
    give_places(piece.stored);
    return Status::kOk;
  }
  unmap_behind(block, piece, miss);
  driver_failure(miss, failure);
  if (failure != nullptr)
    (*failure)->text = "the block's memory could not be read back from the file: " + file_text(error);
  return Status::kFileFailed;
}

// Its pages are free again. Those that the driver does not unmap stay behind it: the next unspilling reads
// again.
void DeviceHeap::unmap_behind(Block* block, const Piece& piece, Miss& miss) {
  const SharedLocked mapping(mappings_mutex_);
  if (device_->unmap(piece.range.begin, piece.range.bytes()) != CUDA_SUCCESS) return;
  const Locked guard(lock_);
  Arena& arena = *arenas_[block->arena];
  for (uint64_t at = piece.range.begin; at < piece.range.end; at += page_bytes_) {
    miss.reservation.pages.push_back(arena.page(at));
    arena.set_page(at, kPageStored);
  }
  mapped_bytes_ -= piece.range.bytes();
  reserved_bytes_ += piece.range.bytes();
  spilled_[block].pieces.back().mapped = false;
}

// Reads the next pages while the last ones are copied. An errno value.
int DeviceHeap::read_from_file(const Piece& piece) {
  const Locked buffers(file_mutex_);
  if (buffers_.make(*device_) != CUDA_SUCCESS) return ENOMEM;
  PageFile& file = *allocator_.page_file();
  std::array<Device::Copy, 2> copies;
  int error = 0;
  double us = 0;
  for (uint64_t from = 0; from < piece.stored.size() && error == 0; from += FileBuffers::kPages) {
    const uint64_t group = from / FileBuffers::kPages;
    const uint64_t end = std::min<uint64_t>(from + FileBuffers::kPages, piece.stored.size());
    Device::Copy& copy = copies[group % 2];
    if (group >= copies.size() && device_->wait(&copy, &us) != CUDA_SUCCESS) error = EIO;
    for (uint64_t i = from; i < end && error == 0; ++i)
      error = file.read(piece.stored[i], buffers_.at(group) + (i - from) * PageFile::kPageBytes);
    if (error == 0 && device_->copy(piece.range.begin + from * PageFile::kPageBytes,
                                    reinterpret_cast<uint64_t>(buffers_.at(group)),
                                    (end - from) * PageFile::kPageBytes, &copy) != CUDA_SUCCESS)
      error = EIO;
  }
  for (Device::Copy& copy : copies)
    if (device_->wait(&copy, &us) != CUDA_SUCCESS && error == 0) error = EIO;
  return error;
}

void DeviceHeap::settle_unspilled(Block* block) {
  Move move;
  move.block = block;
  move.was = Tier::kNvme;
  {
    const Locked guard(lock_);
    std::vector<Piece>& pieces = spilled_[block].pieces;
    move.range = pieces.back().range;
    remove_piece(pieces.back());
    pieces.pop_back();
  }
  record_move(move, CUDA_SUCCESS);
}

bool use_page_file(Allocator& allocator, const std::string& folder, uint64_t most_bytes, std::string* why_not,
                   Backoff::Now now) {
  std::unique_ptr<PageFile> file = PageFile::open(folder, most_bytes, why_not, now);
  const bool made = file != nullptr;
  if (made) allocator.set_page_file(std::move(file));
  return made;
}

std::string file_trouble(Allocator& allocator) {
  const PageFile* file = allocator.page_file();
  const int error = file == nullptr ? 0 : file->last_error();
  return error == 0 ? "" : std::generic_category().message(error);
}

uint64_t file_room_bytes(Allocator& allocator) noexcept {
  PageFile* file = allocator.page_file();
  return file == nullptr ? 0 : file->free_bytes();
}

}  // namespace spillway
