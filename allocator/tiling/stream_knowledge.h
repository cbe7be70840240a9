// What is known of the program's streams. The driver takes a stream for a pointer: to ask it about one that
// the program has destroyed is the end of the process.
//
// Thread-safety: any thread; set before the first request. Errors: none.
#pragma once
#include <atomic>
#include <cstdint>

#include "allocator/units.h"

namespace spillway {

// In place of a stream that was destroyed.
inline constexpr StreamId kStreamGone{UINT64_MAX};

struct StreamKnowledge {
  // Streams under capture in the process. Whoever counts them tells of each stream's end too
  // (Allocator::stream_ends). Null: nobody does.
  std::atomic<uint32_t (*)()> captures{nullptr};
  // 1: the stream, which the calling thread allocates on, is never destroyed. Null: taken to be so of all.
  std::atomic<int (*)(uint64_t stream)> lasts{nullptr};

  bool captures_nothing() const {
    const auto count = captures.load();
    return count != nullptr && count() == 0;
  }
  bool captures_something() const {
    const auto count = captures.load();
    return count != nullptr && count() != 0;
  }
  // Whether the driver can be asked about it also later, when no request of the program's names it.
  bool may_ask(StreamId stream) const {
    constexpr uint64_t kPerThread = 2;  // as cuda.h numbers the default streams
    const auto known = lasts.load();
    return captures.load() != nullptr || known == nullptr || static_cast<uint64_t>(stream) <= kPerThread ||
           known(static_cast<uint64_t>(stream)) != 0;
  }
};

}  // namespace spillway
