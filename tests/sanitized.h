#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace spillway {

// A sanitized program is many times slower, and its long searches take samples.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A sweep lets the first, the second, ... of a function's calls fail. Under ASan it takes every third, and
// under TSan, where mapping is slow, every 47th: the rounds run the same threads. A random search is kShorter
// times shorter, under TSan more: it has one thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr uint64_t kNextFailing = 47, kShorter = 100;
#else
inline constexpr uint64_t kNextFailing = kSanitized ? 3 : 1, kShorter = kSanitized ? 20 : 1;
#endif

// Of a sweep whose places are much alike every nth, and in tools/soak each.
inline uint64_t one_in(uint64_t n) {
  return std::getenv("SPILLWAY_EVERY_REQUEST") == nullptr ? n : 1;
}

// The step of a sweep over the requests of a training: `every`, and more in a sanitized program.
inline constexpr uint64_t next_sample(uint64_t every) {
  constexpr uint64_t kMore = 31, kMost = 211;
  return kSanitized ? std::max(every, std::min(kMore * every, kMost)) : every;
}

}  // namespace spillway
