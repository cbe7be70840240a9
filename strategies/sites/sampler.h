// Chooses the allocations whose stack is taken, so that what each place holds is known at a bounded cost.
//
// One byte in `interval_bytes` is chosen at random, and with it the block that it is in (as tcmalloc samples:
// https://google.github.io/tcmalloc/sampling.html). A chosen block stands for size / (1 - e^(-size/interval))
// bytes: sums of these are unbiased, and blocks far larger than the interval are as good as always chosen.
// The time that the stacks take is measured. Where it exceeds `kMostShare` of what passes, the interval
// doubles; it comes back when they take less than a quarter of that. What passes is the less of the clock's
// time and the process's own: a program that waits for something pays for stacks out of the time between.
//
// Thread-safety: every function may be called from any thread; the countdown is the thread's own. Errors:
// none. Units: bytes, nanoseconds.
#pragma once
#include <atomic>
#include <cstdint>

namespace spillway {

class Sampler {
 public:
  struct Clocks {
    uint64_t wall_ns = 0, process_ns = 0;
  };

  // Of the measured time. A step pays two to three times that, since each stack costs the program some of its
  // caches (benchmarks/overhead, --stacks): together no more than one percent.
  static constexpr double kMostShare = 0.003;
  static constexpr uint64_t kMostInterval = uint64_t{1} << 32;

  // `interval_bytes` 0: every allocation, whatever it costs.
  explicit Sampler(uint64_t interval_bytes) : base_(interval_bytes), interval_(interval_bytes) {}

  // Of the hot path: whether `take` must decide. A new thread's first allocation is always put to it.
  static bool due(uint64_t bytes) noexcept {
    left_ -= static_cast<int64_t>(bytes);
    return left_ < 0;
  }
  // No allocation of this thread is due for a very long time.
  static void rest() noexcept { left_ = INT64_MAX; }

  // After `due`: how many bytes the allocation stands for; 0: it is not chosen.
  uint64_t take(uint64_t bytes) noexcept;
  // A stack took `ns`. `now` is asked seldom.
  void spent(uint64_t ns, Clocks (*now)() noexcept) noexcept;
  uint64_t interval_bytes() const noexcept { return interval_.load(std::memory_order_relaxed); }

 private:
  void draw() noexcept;

  // Static TLS: this code is in a library that is loaded late, where any other model costs a call.
  static constinit thread_local int64_t left_ __attribute__((tls_model("initial-exec")));
  const uint64_t base_;
  std::atomic<uint64_t> interval_;
  std::atomic<uint64_t> stacks_{0}, spent_ns_{0}, wall_since_{0}, process_since_{0};
};

}  // namespace spillway
