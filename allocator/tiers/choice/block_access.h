// Work that is about to use a block.
//
// Thread-safety: a value. Errors: none.
#pragma once
#include <cstdint>

namespace spillway {

struct BlockAccess {
  static constexpr uint64_t kWhole = UINT64_MAX;  // all of the block, once

  uint64_t bytes = kWhole;  // that it reads of the block, each as often as it does so
  uint64_t launches = 0;    // by the thread so far, where they are counted
};

}  // namespace spillway
