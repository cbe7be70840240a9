// This process under the preloaded library: its mode, its place in the summary of `spillway run`, and the way
// to say something to the user.
//
// Thread-safety: any thread. Errors: a mode that does not exist is said once on standard error, and taken for
// `observe`.
#pragma once
#include "interpose/summary.h"

namespace spillway::interpose {

Mode mode();
// "spillway: <text>" on standard error.
void say(const char* text, const char* more = "");
[[noreturn]] void give_up(const char* text);

// Where this process counts: its slot of the summary, or memory of its own.
ProcessSummary& summary();

// Where this thread counts its calls. A write of its own needs no locked instruction, which would cost more
// than all the rest of a hook.
class Counter {
 public:
  [[gnu::always_inline]] static void add(std::atomic<uint64_t> CallCounts::* kind) {
    if (mine_ == nullptr) [[unlikely]]
      claim();
    std::atomic<uint64_t>& count = mine_->*kind;
    if (shared_) [[unlikely]]
      count.fetch_add(1, std::memory_order_relaxed);
    else
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Of the calling thread; of all that share its place where there are too many.
  static uint64_t launches() {
    return mine_ == nullptr ? 0 : mine_->launches.load(std::memory_order_relaxed);
  }
  // In a child of fork, whose counts are its own.
  static void forget() { mine_ = nullptr; }

 private:
  [[gnu::cold]] static void claim();
  [[gnu::tls_model("initial-exec")]] static inline thread_local CallCounts* mine_ = nullptr;
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool shared_ = false;
};

}  // namespace spillway::interpose
