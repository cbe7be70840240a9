// Drawing on the process's budget: Spillway's allocator and, through the preloaded library, every other
// taker of device memory use these, so that there is one limit and one number.
//
// Thread-safety: any thread, without a lock: what is drawn is compared and added in one step, so that two
// never both get the last bytes. Ownership: the budget is the caller's. Errors: `draw` is false where the
// limit does not allow it, and nothing changes. Needs no C++ library. Units: bytes. `device` is below
// SPILLWAY_MOST_DEVICES.
#pragma once
#include <cstddef>
#include <cstdint>

#include "allocator/accounting/process_totals.h"

namespace spillway::budget {

// Who draws: both are counted together, and what the driver was asked for natively also by itself.
enum class By : uint8_t { kAllocator, kDriverCall };

inline uint64_t read(const uint64_t& number) {
  return __atomic_load_n(&number, __ATOMIC_RELAXED);
}

// What may still be drawn if `kept` bytes are to stay.
inline uint64_t room(const spillway_budget& budget, size_t device, uint64_t kept) {
  const uint64_t limit = read(budget.limit_bytes), taken = read(budget.taken_bytes[device]);
  const uint64_t left = taken < limit ? limit - taken : 0;
  return left > kept ? left - kept : 0;
}

// Draws where `kept` bytes stay below the limit then.
inline bool draw(spillway_budget& budget, size_t device, uint64_t bytes, uint64_t kept, By by) {
  uint64_t& taken = budget.taken_bytes[device];
  const uint64_t limit = read(budget.limit_bytes);
  uint64_t seen = read(taken);
  do {
    const uint64_t left = seen < limit ? limit - seen : 0;
    if (left < kept || left - kept < bytes) return false;
  } while (
      !__atomic_compare_exchange_n(&taken, &seen, seen + bytes, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  if (by == By::kDriverCall) __atomic_fetch_add(&budget.native_bytes[device], bytes, __ATOMIC_RELAXED);
  return true;
}

// Counts what was allowed by other means.
inline void add(spillway_budget& budget, size_t device, uint64_t bytes, By by = By::kAllocator) {
  __atomic_fetch_add(&budget.taken_bytes[device], bytes, __ATOMIC_RELAXED);
  if (by == By::kDriverCall) __atomic_fetch_add(&budget.native_bytes[device], bytes, __ATOMIC_RELAXED);
}

inline void give_back(spillway_budget& budget, size_t device, uint64_t bytes, By by) {
  if (by == By::kDriverCall) __atomic_fetch_sub(&budget.native_bytes[device], bytes, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&budget.taken_bytes[device], bytes, __ATOMIC_RELAXED);
}

}  // namespace spillway::budget
