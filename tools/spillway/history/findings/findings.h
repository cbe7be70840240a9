// What a history of memory tells: why the request failed, where the memory was, who held it.
//
// Thread-safety: pure functions. Ownership: texts are their own. Units: bytes, microseconds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/request/verdict.h"
#include "tools/spillway/history/findings/kinds.h"
#include "tools/spillway/history/findings/near_holes.h"
#include "tools/spillway/history/findings/pools.h"
#include "tools/spillway/history/history.h"

namespace spillway::tools {

// What keeps growing: each of the program's steps leaves some of it behind, or replaces it by something
// larger.
struct Growth {
  uint64_t steps = 0;  // that left some
  uint64_t bytes_per_step = 0;
  bool replaced = false;  // in new blocks each time, such as a cache that is copied as it grows
};

struct Holder {
  std::string where;   // "model.py:47 forward"
  std::string caller;  // the program's own line that led there, "" if it is the same
  uint64_t bytes = 0, blocks = 0;
  std::optional<uint64_t> oldest_us;  // how long before the moment; nothing: since before the history
  std::optional<Growth> growth;
};

// Where the memory was. reserved = in use + rounding + pending + idle + elsewhere.
struct Holdings {
  uint64_t reserved = 0;
  uint64_t in_use = 0;    // as the program asked for it
  uint64_t rounding = 0;  // given beyond that
  uint64_t pending = 0;   // freed, but other streams may still use it
  uint64_t idle = 0;      // held by the allocator, used by nobody
  uint64_t largest_idle = 0;
  uint64_t elsewhere = 0;            // likewise, for other pools and streams than those of the request
  std::optional<uint64_t> free;      // of the card, as the driver said when the request failed
  std::optional<uint64_t> capacity;  // of the card, where it is known
  // Of the card: what is neither reserved nor free. The context, other libraries, other processes.
  std::optional<uint64_t> outside() const;
};

struct FailedRequest {
  uint64_t bytes = 0, stream = 0;
  std::string where, caller;
};

struct HistoryFindings {
  int device = 0;
  std::optional<FailedRequest> failure;  // the last one; nothing: no request failed in the history
  std::optional<size_t> failure_event;   // of the device's events
  std::optional<size_t> step_began;      // before which event the step of the failure began
  uint64_t failures = 0;
  // Of the failure: a leak or a growth where what grows covers what was missing, else by the equation.
  Verdict verdict;
  std::string remark;              // what else the history says about it, "" if nothing
  Holdings holdings;               // at the failure, else when the snapshot was written
  std::vector<Holder> holders;     // likewise; largest first
  std::optional<size_t> grows;     // of `holders`: the one that the verdict names as what grows
  std::vector<KindShare> kinds;    // likewise; what it was for
  std::vector<PoolHolding> pools;  // likewise; what the request may not use of it
  // Of a failure by fragmentation: what lies between the free pieces. Not of Spillway's own allocator, which
  // joins free pages wherever they lie.
  std::vector<NearHole> near_holes;
  uint64_t peak_bytes = 0;  // the most in use at once, in the history
  std::vector<Holder> at_peak;
  bool peak_is_the_failure = false;
  uint64_t steps = 0, events = 0, allocations = 0, span_us = 0, contradictions = 0;
};

// What was in use at the last failure by the allocator's own count, also of what the history has lost.
struct Counted {
  std::vector<Holder> holders;  // without growth and age
  uint64_t in_use = 0;          // of these places and of those without a name
};

// What each place held before event `event` of a device, largest first; without growth. REQUIRES: `device` is
// one of `history.devices`.
std::vector<Holder> holders_before(const MemoryHistory& history, int device, size_t event);
// Before which events the program's steps began, of those before `until`.
std::vector<size_t> steps_of(const DeviceHistory& device, size_t until);

// Of the device whose request failed last; without one, of that which holds most. Nothing: the snapshot is
// empty. `capacity`: of the card, where the user gave it. `counted`: REQUIRES that it is of that failure.
std::optional<HistoryFindings> look_into(const MemoryHistory& snapshot, std::optional<uint64_t> capacity,
                                         const Counted& counted = {});

}  // namespace spillway::tools
