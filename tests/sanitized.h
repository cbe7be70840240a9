#pragma once
#include <cstdint>

namespace spillway {

// A sanitized program is many times slower, and its long searches take samples.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A sweep lets the first, the second, ... of a function's calls fail. Under TSan, where mapping is slow, it
// takes every seventh: the rounds run the same threads.
#if defined(__SANITIZE_THREAD__)
inline constexpr uint64_t kNextFailing = 7;
#else
inline constexpr uint64_t kNextFailing = 1;
#endif

}  // namespace spillway
