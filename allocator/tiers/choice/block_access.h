// Work that is about to use a block.
//
// Thread-safety: a value. Errors: none.
#pragma once
#include <cstdint>

namespace spillway {

struct BlockAccess {
  uint32_t reads = 1;     // of the whole block
  uint64_t launches = 0;  // by the thread so far, where they are counted
};

}  // namespace spillway
