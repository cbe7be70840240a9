// A call of the driver that failed for want of memory: what is done about it.
//
// Thread-safety: any thread. Errors: the driver's own, when nothing helped. In `observe` the failure is only
// counted.
#pragma once
#include "interpose/hooks/allocation_size.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

struct Shortage {
  Function function;
  Asked asked;
  bool over_limit;  // the process's own: the driver was not asked
};

// Makes room by the ladder of Spillway's core and tries again. Returns the last result of `again`, or
// CUDA_ERROR_OUT_OF_MEMORY if it was not called.
CUresult rescue(const Shortage& shortage, CUresult (*again)(void*), void* context);

}  // namespace spillway::interpose
