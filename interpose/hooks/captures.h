// How many streams of the process are being captured: a strategy that frees memory or waits would break a
// capture.
//
// Thread-safety: any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "driver/table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

inline std::atomic<uint32_t> captures{0};

inline uint32_t captures_under_way() {
  return captures.load(std::memory_order_relaxed);
}

// An end that fails ends the capture too, unless there was none.
template <Function function>
void watch_captures(CUresult result) {
  if constexpr (begins_with(name_of(function), "cuStreamBeginCapture")) {
    if (result == CUDA_SUCCESS) captures.fetch_add(1, std::memory_order_relaxed);
  } else if constexpr (begins_with(name_of(function), "cuStreamEndCapture")) {
    const bool ended = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                       result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (ended && captures.load(std::memory_order_relaxed) != 0)
      captures.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace spillway::interpose
