// Replaying requests on an allocator, and the smallest capacity on which it serves them all.
//
// Thread-safety: one replay on Spillway at a time in a process. Ownership: plain values. Errors: in the
// outcome. Units: bytes.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/spillway/replay/input/requests.h"
#include "tools/spillway/replay/torch/torch_settings.h"

namespace spillway::tools {

enum class ReplayAllocator : uint8_t { kNative, kExpandable, kSpillway };
const char* replay_allocator_name(ReplayAllocator allocator);  // "native", "expandable", "spillway"

struct ReplayFailure {
  size_t request = 0;  // its place in `Requests::requests`
  uint64_t bytes = 0, step = 0;
  uint64_t largest_free = 0;  // held by the allocator, in one piece, of no use to the request
  uint64_t reserved = 0, live = 0;
};

struct ReplayOutcome {
  bool finished = false;                 // all was replayed, or the request was reached that failed
  std::optional<ReplayFailure> failure;  // the first request that was not served
  uint64_t most_reserved = 0;
  uint64_t most_live = 0;  // as asked
  std::string error;       // why it could not be replayed: "" or a text
  bool completes() const { return finished && !failure; }
};

using ReplayDeadline = std::chrono::steady_clock::time_point;

struct ReplayTarget {
  ReplayAllocator allocator = ReplayAllocator::kNative;
  TorchSettings settings;  // for PyTorch's; whether they are expandable follows from `allocator`
};

// What the allocator did.
struct ReplayRecord {
  DeviceHistory device;
  std::string incomplete;  // what of it is missing; "" of a whole one
};

// Up to the first request that is not served. A replay that takes longer than `deadline` is not finished.
// `record` may be null.
ReplayOutcome replay(const Requests& requests, const ReplayTarget& target, uint64_t capacity,
                     ReplayDeadline deadline, ReplayRecord* record = nullptr);

struct SmallestCapacity {
  std::optional<uint64_t> bytes;  // nothing: not found before the deadline, or for `error`
  std::string error;
};

// In pages of 2 MiB, by bisection: on what it returns the requests were seen to be served, and on a page less
// not to be.
SmallestCapacity smallest_capacity(const Requests& requests, const ReplayTarget& target,
                                   ReplayDeadline deadline);

}  // namespace spillway::tools
