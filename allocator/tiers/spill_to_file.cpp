// Registered blocks' pages go to a file. Nobody uses such a block, so that nothing needs to stand still for
// it but what was queued before.
#include <algorithm>
#include <array>
#include <chrono>

#include "allocator/heap.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
}  // namespace

void DeviceHeap::give_places(const std::vector<PageFile::Stored>& stored) {
  for (const PageFile::Stored& page : stored) allocator_.page_file()->give(page.place);
}

// Copies the next pages of the range while the last ones are written. An errno value.
int DeviceHeap::write_to_file(Move& move) {
  PageFile& file = *allocator_.page_file();
  const uint64_t pages = move.range.bytes() / PageFile::kPageBytes;
  std::array<Device::Copy, 2> copies;
  const auto begin_copy = [&](uint64_t from) SPILLWAY_REQUIRES(file_mutex_) {
    const uint64_t count = std::min(FileBuffers::kPages, pages - from), group = from / FileBuffers::kPages;
    return device_->copy(reinterpret_cast<uint64_t>(buffers_.at(group)),
                         move.range.begin + from * PageFile::kPageBytes, count * PageFile::kPageBytes,
                         &copies[group % 2]);
  };
  int error = begin_copy(0) == CUDA_SUCCESS ? 0 : EIO;
  for (uint64_t from = 0; from < pages && error == 0; from += FileBuffers::kPages) {
    const uint64_t group = from / FileBuffers::kPages, next = from + FileBuffers::kPages;
    double us = 0;
    if (device_->wait(&copies[group % 2], &us) != CUDA_SUCCESS) error = EIO;
    if (error == 0 && next < pages && begin_copy(next) != CUDA_SUCCESS) error = EIO;
    for (uint64_t i = from; i < std::min(next, pages) && error == 0; ++i) {
      const std::optional<uint64_t> place = file.take();
      if (!place) {
        error = ENOSPC;
        break;
      }
      move.stored.push_back({.place = *place});
      error = file.write(buffers_.at(group) + (i - from) * PageFile::kPageBytes, &move.stored.back());
    }
  }
  double us = 0;
  for (size_t i = 0; error != 0 && i < copies.size(); ++i) device_->wait(&copies[i], &us);
  return error;
}

// All that could be written counts only when the file has it.
void DeviceHeap::write_all(std::vector<Move>& moves) {
  const Locked buffers(file_mutex_);
  if (buffers_.make(*device_) != CUDA_SUCCESS) return;
  const auto start = Clock::now();
  uint64_t bytes = 0;
  for (Move& move : moves) {
    const int error = write_to_file(move);
    move.done = error == 0;
    if (!move.done) break;
    bytes += move.range.bytes();
  }
  if (allocator_.page_file()->finish() != 0)
    for (Move& move : moves) move.done = false;
  const std::chrono::duration<double, std::micro> us = Clock::now() - start;
  if (bytes != 0) measure_copies(Tier::kNvme, bytes, us.count());
}

SpillResult DeviceHeap::store(std::vector<Move>& moves, const SpillPlace& where,
                              std::vector<CUmemGenericAllocationHandle>* pages) {
  SpillResult out;
  if (moves.empty()) return out;
  // After they were marked: a block that was done with a moment ago may have work in flight.
  if (where.come_to_rest()) write_all(moves);
  {
    const SharedLocked mapping(mappings_mutex_);
    for (Move& move : moves) {
      CUresult result = move.done ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
      if (move.done) {
        move.from = pages_in_range(move.block, move.range);
        result = device_->unmap(move.range.begin, move.range.bytes());
        move.done = result == CUDA_SUCCESS;
      }
      if (!move.stored.empty()) record_move(move, result);
    }
    out.bytes = settle_out(moves, pages);
  }
  for (const Move& move : moves)
    if (!move.done) give_places(move.stored);
  for (const Move& move : moves) end_move(move.block);
  return out;
}

}  // namespace spillway
