#include "allocator/tiers/file/file_copies.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
}  // namespace

// Copies the next pages of the range while the last ones are written.
int FileCopies::write(Move& move) {
  PageFile& file = *heap_.shared.page_file;
  const uint64_t pages = move.range.bytes() / PageFile::kPageBytes;
  std::array<CopyStream::Copy, 2> copies;
  const auto begin_copy = [&](uint64_t from) SPILLWAY_REQUIRES(mutex_) {
    const uint64_t count = std::min(FileBuffers::kPages, pages - from), group = from / FileBuffers::kPages;
    return heap_.device->copies().copy(reinterpret_cast<uint64_t>(buffers_.at(group)),
                                       move.range.begin + from * PageFile::kPageBytes,
                                       count * PageFile::kPageBytes, &copies[group % 2]);
  };
  int error = begin_copy(0) == CUDA_SUCCESS ? 0 : EIO;
  for (uint64_t from = 0; from < pages && error == 0; from += FileBuffers::kPages) {
    const uint64_t group = from / FileBuffers::kPages, next = from + FileBuffers::kPages;
    double us = 0;
    if (heap_.device->copies().wait(&copies[group % 2], &us) != CUDA_SUCCESS) error = EIO;
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
  for (size_t i = 0; error != 0 && i < copies.size(); ++i) heap_.device->copies().wait(&copies[i], &us);
  return error;
}

// All that could be written counts only when the file has it.
void FileCopies::write_all(std::vector<Move>& moves) {
  const Locked buffers(mutex_);
  if (buffers_.make(*heap_.device) != CUDA_SUCCESS) return;
  const auto start = Clock::now();
  uint64_t bytes = 0;
  for (Move& move : moves) {
    const int error = write(move);
    move.done = error == 0;
    if (!move.done) break;
    bytes += move.range.bytes();
  }
  if (heap_.shared.page_file->finish() != 0)
    for (Move& move : moves) move.done = false;
  const std::chrono::duration<double, std::micro> us = Clock::now() - start;
  if (bytes != 0) migration_.measured(Tier::kNvme, bytes, us.count());
}

// Reads the next pages while the last ones are copied.
int FileCopies::read(const Piece& piece) {
  const Locked buffers(mutex_);
  if (buffers_.make(*heap_.device) != CUDA_SUCCESS) return ENOMEM;
  PageFile& file = *heap_.shared.page_file;
  std::array<CopyStream::Copy, 2> copies;
  int error = 0;
  double us = 0;
  for (uint64_t from = 0; from < piece.stored.size() && error == 0; from += FileBuffers::kPages) {
    const uint64_t group = from / FileBuffers::kPages;
    const uint64_t end = std::min<uint64_t>(from + FileBuffers::kPages, piece.stored.size());
    CopyStream::Copy& copy = copies[group % 2];
    if (group >= copies.size() && heap_.device->copies().wait(&copy, &us) != CUDA_SUCCESS) error = EIO;
    for (uint64_t i = from; i < end && error == 0; ++i)
      error = file.read(piece.stored[i], buffers_.at(group) + (i - from) * PageFile::kPageBytes);
    if (error == 0 && heap_.device->copies().copy(piece.range.begin + from * PageFile::kPageBytes,
                                                  reinterpret_cast<uint64_t>(buffers_.at(group)),
                                                  (end - from) * PageFile::kPageBytes, &copy) != CUDA_SUCCESS)
      error = EIO;
  }
  for (CopyStream::Copy& copy : copies)
    if (heap_.device->copies().wait(&copy, &us) != CUDA_SUCCESS && error == 0) error = EIO;
  return error;
}

void FileCopies::end() {
  const Locked guard(mutex_);
  buffers_.give_back(*heap_.device);
}

}  // namespace spillway
