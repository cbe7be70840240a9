// What memory was for, as far as its stacks show it, and in blocks of which sizes it lay. Blocks of one size
// are mostly tensors of one shape: a file has no shapes.
//
// Thread-safety: pure functions. Ownership: plain values. Units: bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/spillway/history/history.h"
#include "tools/spillway/history/moment.h"

namespace spillway::tools {

enum class Purpose : uint8_t { kModel, kOptimizer, kForward, kBackward, kOther, kUnknown };

struct SizeShare {
  uint64_t block_bytes = 0, blocks = 0;  // as the program asked for each
  uint64_t bytes() const { return block_bytes * blocks; }
};

struct KindShare {
  Purpose purpose = Purpose::kUnknown;
  uint64_t bytes = 0, blocks = 0;
  std::vector<SizeShare> sizes;  // that make the most bytes, a few of them
};

const char* purpose_name(Purpose purpose);

// Of the blocks that were in use, most bytes first. Empty where no stack tells anything.
std::vector<KindShare> kinds_at(const MemoryHistory& history, const Moment& moment);

}  // namespace spillway::tools
