// What lies in a file comes back: on device pages for which the ladder may make room, before the program uses
// the block.
#include <cerrno>
#include <system_error>

#include "allocator/tiers/before_use/block_returns.h"

namespace spillway {
namespace {

std::string file_text(int error) {
  if (error == EBADMSG) return "its bytes are not those that were written";
  if (error == ENODATA) return "the file has become shorter";
  return std::generic_category().message(error);
}

}  // namespace

Status BlockReturns::return_from_file(Block* block, uint64_t address, FailurePtr* failure) {
  const Device::Scope scope(*heap_.device);
  std::optional<Piece> piece;
  Status status = claim_last(block, address, From::kFile, &piece);
  while (status == Status::kOk && piece) {
    status = return_piece_from_file(block, *piece, failure);
    migration_.end(block);
    if (status == Status::kOk) status = claim_last(block, address, From::kFile, &piece);
  }
  return status;
}

Status BlockReturns::return_piece_from_file(Block* block, const Piece& piece, FailurePtr* failure) {
  Miss miss = requests_.pages_for(piece.range.bytes(), stream_of(block));
  Status status = piece.mapped ? Status::kOk : requests_.get_pages(miss, failure);
  if (status == Status::kOk && !piece.mapped) status = map_behind(block, piece, miss, failure);
  if (status == Status::kOk) status = fill(block, piece, miss, failure);
  requests_.release(miss);
  return status;
}

// The reservation's pages are the arena's from here on, though their bytes are still to come.
Status BlockReturns::map_behind(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure) {
  const std::vector<driver::Page> pages = miss.pages.last(piece.range.bytes());
  const SharedLocked mapping(heap_.mappings_mutex);
  miss.error = heap_.device->map(piece.range.begin, pages);
  miss.call = "bringing memory back from a file";
  if (miss.error != CUDA_SUCCESS) return requests_.driver_failure(miss, failure);
  const Locked guard(heap_.lock);
  miss.pages.take_last(piece.range.bytes());
  set_pages(heap_.tiling.arena_of(block), piece.range.begin, pages);
  heap_.pages.map(piece.range.bytes());
  heap_.tiers.spilled.at(block).pieces.back().mapped = true;
  return Status::kOk;
}

// What the file has goes to the pages behind the block. What cannot be read leaves the piece in the file.
Status BlockReturns::fill(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure) {
  const int error = file_.read(piece);
  if (error == 0) {
    settle(block, piece);
    memory_.give_back(piece.stored);
    return Status::kOk;
  }
  unmap_behind(block, piece, miss);
  requests_.driver_failure(miss, failure);
  if (failure != nullptr)
    (*failure)->text = "the block's memory could not be read back from the file: " + file_text(error);
  return Status::kFileFailed;
}

// Its pages are free again. Those that the driver does not unmap stay behind it: the next return reads again.
void BlockReturns::unmap_behind(Block* block, const Piece& piece, Miss& miss) {
  const SharedLocked mapping(heap_.mappings_mutex);
  if (heap_.device->unmap(piece.range.begin, piece.range.bytes()) != CUDA_SUCCESS) return;
  const Locked guard(heap_.lock);
  Arena& arena = heap_.tiling.arena_of(block);
  miss.pages.add(handles_in(arena, piece.range));
  arena.set_pages(piece.range, kPageStored);
  heap_.pages.unmap(piece.range.bytes());
  heap_.tiers.spilled.at(block).pieces.back().mapped = false;
}

void BlockReturns::settle(Block* block, const Piece& piece) {
  {
    const Locked guard(heap_.lock);
    heap_.tiers.spilled.remove({.block = block, .range = piece.range});
  }
  migration_.record({.block = block, .range = piece.range, .was = Tier::kNvme}, CUDA_SUCCESS);
}

}  // namespace spillway
