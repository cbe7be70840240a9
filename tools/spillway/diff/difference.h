// What grew between two moments: of two runs, or of one.
//
// Between two versions of a program lines move. Where a function has as many places that only the earlier
// side has as such that only the later one has, they are taken for the same, in the order of their lines.
//
// Thread-safety: pure functions. Ownership: plain values. Errors: none. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// What the allocator of one device held before an event.
struct MomentSide {
  const MemoryHistory* history = nullptr;
  int device = 0;
  size_t event = 0;
};

struct PlaceChange {
  std::string where, caller;  // as the later side names it, else the earlier one
  uint64_t before = 0, after = 0;
  uint64_t blocks_before = 0, blocks_after = 0;
  int64_t change() const { return static_cast<int64_t>(after - before); }
};

struct SideTotals {
  int device = 0;
  uint64_t in_use = 0, reserved = 0;
  uint64_t older = 0;      // of what is in use: no event and no block of the file tells of it
  std::string incomplete;  // what the file lacks; "" of a whole one
};

struct Difference {
  SideTotals before, after;
  std::vector<PlaceChange> places;  // those that changed, what changed most first
  uint64_t unchanged = 0;           // places
};

Difference difference_of(const MomentSide& before, const MomentSide& after);

std::string difference_text(const Difference& difference, const std::string& before,
                            const std::string& after);
std::string difference_json(const Difference& difference, const std::string& before,
                            const std::string& after);

}  // namespace spillway::tools
