// Every event of the allocator with its addresses, and the names of the places, as a file that the report's
// page is made of. tools/spillway/rehearse/report/history.h reads it.
//
// A line an event: kind, device, address, bytes, stream, the pool's two numbers, place; in hexadecimal.
// Beside those "step N", "name PLACE {JSON}", and "cut" where the file would have become too large.
//
// Thread-safety: the state's lock. Errors: what cannot be written is left out; the file ends there.
#pragma once
#include <cstdint>
#include <utility>

#include "libtorch/rehearsal/probe/sites.h"

namespace spillway::rehearsal {

enum class HistoryKind : char {
  kAllocated = 'a',
  kFreeRequested = 'f',
  kFreeCompleted = 'c',
  kSegmentTaken = '+',
  kSegmentGivenBack = '-',
  kMapped = 'm',
  kUnmapped = 'u',
  kFailed = '!',  // `address`: what the card had free
};

struct HistoryLine {
  HistoryKind kind = HistoryKind::kAllocated;
  int device = 0;
  uint64_t address = 0, bytes = 0, stream = 0;
  std::pair<uint64_t, uint64_t> pool;
  Site site = 0;
};

void open_history();  // where SPILLWAY_REHEARSAL_HISTORY says ("%p" is the process id), if it does
void write_history(const HistoryLine& line);
void write_history_step(uint64_t step);
// The places that have names since the last call; then the file holds all until now.
void flush_history(const Sites& sites);

}  // namespace spillway::rehearsal
