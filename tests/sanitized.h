#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway {

// A sanitized program is many times slower, and its long searches take samples.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A sweep lets the first, the second, ... of a function's calls fail. Under TSan, where mapping is slow, it
// takes every 23rd: the rounds run the same threads. A random search is kShorter times shorter, under TSan
// more: it has one thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr uint64_t kNextFailing = 23, kShorter = 50;
#else
inline constexpr uint64_t kNextFailing = 1, kShorter = kSanitized ? 20 : 1;
#endif

// The step of a sweep over the requests of a training: `every`, and more in a sanitized program.
inline constexpr uint64_t next_sample(uint64_t every) {
  constexpr uint64_t kMore = 11, kMost = 101;
  return kSanitized ? std::max(every, std::min(kMore * every, kMost)) : every;
}

}  // namespace spillway
