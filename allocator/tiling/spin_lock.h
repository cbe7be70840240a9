// A spin lock that backs off: uncontended it is one exchange; contended it pauses, then yields the processor.
#pragma once
#include <sched.h>

#include <atomic>

namespace spillway {

class SpinLock {
 public:
  void lock() noexcept {
    if (!locked_.exchange(true, std::memory_order_acquire)) [[likely]]
      return;
    lock_contended();
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  [[gnu::noinline, gnu::cold]] void lock_contended() noexcept {
    for (unsigned round = 0;; ++round) {
      const unsigned pauses = 16u << (round < 6 ? round : 6);
      for (unsigned i = 0; i < pauses; ++i) pause();
      if (!locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire))
        return;
      if (round > 8) sched_yield();
    }
  }

  std::atomic<bool> locked_{false};
};

}  // namespace spillway
