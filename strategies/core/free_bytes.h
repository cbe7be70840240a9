// What the driver has left on the device of the thread's context, by which strategies measure what they
// gained.
#pragma once
#include <cstddef>

#include "driver/table.h"

namespace spillway {

// 0 where the driver does not say.
inline size_t free_bytes(const driver::Table& table) noexcept {
  size_t free = 0, total = 0;
  return table.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace spillway
