// How requests that needed a rescue ended, counted for a device and for the process alike.
//
// Thread-safety: any thread. Ownership: the caller's. Errors: none. Units: bytes, microseconds.
#pragma once
#include <atomic>
#include <cstdint>

#include "allocator/accounting/process_totals.h"
#include "allocator/allocator.h"

namespace spillway {

inline void count_incident(spillway_incident_totals& totals, Status status, uint64_t bytes,
                           uint64_t us) noexcept {
  const auto add = [](uint64_t& total, uint64_t amount) {
    std::atomic_ref<uint64_t>(total).fetch_add(amount, std::memory_order_relaxed);
  };
  add(totals.failures, 1);
  if (status != Status::kOk) return add(status == Status::kUnwind ? totals.unwound : totals.gave_up, 1);
  add(totals.rescued, 1);
  add(totals.rescued_bytes, bytes);
  add(totals.rescue_us, us);
}

}  // namespace spillway
