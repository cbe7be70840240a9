// Marks between the work that the program queues, by which Spillway's core sees that a queue gets on while it
// waits for it behind the closed gate. Left from the moment at which the core asks for them.
//
// Thread-safety: any thread. Errors: none; a mark that cannot be made is left out.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "driver/table.h"
#include "interpose/gate/gate.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

inline std::atomic<void (*)(uint64_t stream)> mark_progress{nullptr};

// A mark costs about two microseconds, and a queue of a real driver holds about a thousand launches. A graph
// stands for many of them.
constexpr unsigned kWorkBetweenMarks = 64;
[[gnu::tls_model("initial-exec")]] inline thread_local unsigned work_since_mark = 0;

template <class... Parameters>
constexpr bool names_a_stream =
    ((std::is_same_v<Parameters, CUstream> || std::is_same_v<Parameters, const CUlaunchConfig*>) || ...);

// Of work that is over when the call ends there is nothing to see.
template <Function function, class... Parameters>
constexpr bool queues_work = is_gated(function) && names_a_stream<Parameters...> &&
                             !begins_with(name_of(function), "cuStreamBeginCapture");

constexpr bool takes_the_threads_own_stream(Function function) {
  const char* end = name_of(function);
  while (*end != '\0' && !begins_with(end, "_ptsz")) ++end;
  return *end != '\0';
}

template <class First, class... Rest>
CUstream stream_among(First first, Rest... rest) {
  if constexpr (std::is_same_v<First, CUstream>)
    return first;
  else if constexpr (std::is_same_v<First, const CUlaunchConfig*>)
    return first->hStream;
  else
    return stream_among(rest...);
}

// That of the thread itself is what its handle means on this thread.
template <Function function, class... Parameters>
uint64_t stream_handle(Parameters... arguments) {
  CUstream stream = stream_among(arguments...);
  if (stream == nullptr && takes_the_threads_own_stream(function)) stream = CU_STREAM_PER_THREAD;
  return reinterpret_cast<uint64_t>(stream);
}

// A graph may take seconds: what lies between a mark before it and one behind it is its time alone.
template <Function function, class... Parameters>
[[gnu::always_inline]] inline void mark_before([[maybe_unused]] Parameters... arguments) {
  if constexpr (queues_work<function, Parameters...> && begins_with(name_of(function), "cuGraphLaunch")) {
    const auto mark = mark_progress.load(std::memory_order_acquire);
    if (mark != nullptr) [[unlikely]]
      mark(stream_handle<function>(arguments...));
  }
}

// Behind a call that has queued its work: until it returns, the program cannot know that, and so cannot
// destroy the stream.
template <Function function, class... Parameters>
[[gnu::always_inline]] inline void mark_work([[maybe_unused]] CUresult result,
                                             [[maybe_unused]] Parameters... arguments) {
  if constexpr (queues_work<function, Parameters...>) {
    const auto mark = mark_progress.load(std::memory_order_acquire);
    if (mark == nullptr || result != CUDA_SUCCESS) [[likely]]
      return;
    if (!begins_with(name_of(function), "cuGraphLaunch") && ++work_since_mark < kWorkBetweenMarks) return;
    work_since_mark = 0;
    mark(stream_handle<function>(arguments...));
  }
}

}  // namespace spillway::interpose
