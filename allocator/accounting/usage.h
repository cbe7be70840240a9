// What a program has allocated on a device, counted as PyTorch's memory statistics count it: by size class,
// with peaks and turnover.
//
// Thread-safety: none of its own; the heap calls it under its lock. Cost: a few additions for an allocation;
// the peaks are taken when something is freed, before it is subtracted, and when they are read. Units: bytes.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace spillway {

struct Sums {
  uint64_t count = 0;      // blocks
  uint64_t bytes = 0;      // what they take
  uint64_t requested = 0;  // what was asked for

  Sums& operator+=(const Sums& other) {
    count += other.count;
    bytes += other.bytes;
    requested += other.requested;
    return *this;
  }
  Sums& operator-=(const Sums& other) {
    count -= other.count;
    bytes -= other.bytes;
    requested -= other.requested;
    return *this;
  }
  void raise_to(const Sums& other) {
    count = std::max(count, other.count);
    bytes = std::max(bytes, other.bytes);
    requested = std::max(requested, other.requested);
  }
};
inline Sums operator+(Sums a, const Sums& b) {
  return a += b;
}
inline Sums operator-(Sums a, const Sums& b) {
  return a -= b;
}

// Of one class, or of both together. Live: not freed by the program. Active: live, or freed but still waited
// for.
struct UsageLevels {
  Sums live, peak_live, allocated, freed;  // allocated and freed: since the last reset
  Sums active, peak_active, deactivated;   // what became active is what was allocated
};

class Usage {
 public:
  // PyTorch's boundary between its small and its large pool.
  static constexpr uint64_t kSmallClassBytes = 1 << 20;

  void allocate(uint64_t bytes, uint64_t requested) { of(bytes).allocated += {1, bytes, requested}; }
  // `pending`: other streams may still use the block; `complete` follows.
  void free(uint64_t bytes, uint64_t requested, bool pending) {
    Class& it = of(bytes);
    it.peak_live.raise_to(it.live());
    peak_live_.raise_to(live());
    if (pending || pending_.count != 0) [[unlikely]]
      free_beside_pending(bytes, requested, pending);
    it.freed += {1, bytes, requested};
  }
  void complete(uint64_t bytes, uint64_t requested);

  Sums live() const { return classes_[0].live() + classes_[1].live(); }
  Sums peak_live() const {
    Sums peak = peak_live_;
    peak.raise_to(live());
    return peak;
  }
  Sums pending() const { return pending_; }

  enum class Of : uint8_t { kAll, kSmall, kLarge };
  UsageLevels read(Of what);
  void reset_peaks();
  void reset_totals();  // allocated, freed and deactivated begin at 0 again

 private:
  // What every request touches comes first: threads that share a device hand these lines to each other.
  struct Class {
    Sums allocated, freed;  // since the start
    Sums peak_live;         // as far as it has been taken
    Sums live() const { return allocated - freed; }
    Sums active() const { return live() + pending; }

    Sums pending, peak_active;
    Sums allocated_before, freed_before, deactivated_before;  // at the last reset_totals
  };

  Class& of(uint64_t bytes) { return classes_[bytes > kSmallClassBytes]; }
  void free_beside_pending(uint64_t bytes, uint64_t requested, bool pending);
  void raise_active_peaks();
  static UsageLevels read(const Class& it);

  std::array<Class, 2> classes_;
  Sums peak_live_, pending_, peak_active_;  // of both classes
};

}  // namespace spillway
