// Streams that the program destroys. The driver takes a stream for a pointer: Spillway's core, which keeps
// memory by stream, must not ask about one any more when it is gone.
//
// Thread-safety: any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "driver/table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

inline std::atomic<void (*)(uint64_t stream)> stream_ended{nullptr};

inline void tell_stream_ends(CUstream stream) {
  if (const auto tell = stream_ended.load(std::memory_order_acquire))
    tell(reinterpret_cast<uint64_t>(stream));
}

// Called before the driver.
template <Function function, class... Parameters>
void watch_streams([[maybe_unused]] Parameters... arguments) {
  if constexpr (begins_with(name_of(function), "cuStreamDestroy")) tell_stream_ends(arguments...);
}

}  // namespace spillway::interpose
