// The mode `replace`: makes Spillway LibTorch's allocator as soon as LibTorch's CUDA part is in the process.
//
// Thread-safety: any thread. Errors: where it is refused, the reason is said once and kept in the summary,
// and LibTorch's own allocator stays.
#pragma once
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

// Cheap where there is nothing to do.
void replace_if_due();

// The functions that come before the first use of a device.
constexpr bool begins_an_use(Function function) {
  switch (function) {
    case Function::cuInit:
    case Function::cuDeviceGetCount:
    case Function::cuDeviceGet:
    case Function::cuDevicePrimaryCtxRetain:
      return true;
    default:
      return false;
  }
}

}  // namespace spillway::interpose
