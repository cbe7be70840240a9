// How far moves are whose pages change places step by step, in either direction.
//
// Thread-safety: none. Ownership: names moves; who moves owns the progress. Errors: CUresult. Units: bytes.
#pragma once
#include <functional>
#include <vector>

#include "allocator/tiers/host/step_copies.h"
#include "allocator/tiers/moving/neighbours.h"

namespace spillway {

// Of a move, from its beginning on: the old pages are not behind it any more; the new ones are; they have the
// bytes.
struct Progress {
  Move* move;
  uint64_t out_bytes = 0, in_bytes = 0, copied_bytes = 0;
  bool given_up = false;
};

struct Part {
  Progress* progress;
  AddressRange range;
};

// Contiguous.
struct Step {
  bool empty() const { return parts.empty(); }
  AddressRange range() const { return {parts.front().range.begin, parts.back().range.end}; }
  std::vector<Part> parts;
  StepCopies copies;
};

using RecordMove = std::function<void(const Move&, CUresult)>;

// Unmaps what was put in, and maps again what was taken out. No copy is under way.
CUresult put_old_pages_back(Device& device, const Progress& progress);

}  // namespace spillway
