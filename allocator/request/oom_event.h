// One allocation that could not be served, as the strategies see it.
#pragma once
#include <chrono>
#include <cstdint>

#include "allocator/units.h"

namespace spillway {

enum class CaptureState : uint8_t { kNone, kThisStream, kElsewhere };
enum class Source : uint8_t {
  kFramework,
  kDriverCaller
};  // Spillway's allocator, or another library's driver call

// A value: valid for the length of the ladder's run. All byte counts are of `device`.
struct OomEvent {
  uint64_t incident = 0;              // counts up from 1 in a process; the report's key
  uint64_t requested_bytes = 0;       // what the program asked for
  uint64_t rounded_bytes = 0;         // what a block of it takes
  uint64_t short_bytes = 0;           // what is missing: rounded less what could be mapped now; never 0
  uint64_t largest_extent_bytes = 0;  // the largest request that would succeed now
  DeviceId device{};
  StreamId stream{};
  uint64_t pool = 0;  // 0: the device's default pool
  Source source = Source::kFramework;
  const char* library = "";  // who asked, if known
  const char* phase = "";    // the program's phase tag ("forward", "backward", ...)
  // The framework's allocator is the caller: its locks may be held by this thread.
  bool inside_framework = false;
  // NCCL asks. Until NCCL returns, the framework holds a lock, and giving its idle memory back needs that
  // lock: LibTorch's backend nccl2 registers segments with NCCL, and serialises its calls.
  bool framework_waits_for_nccl = false;
  // The process's own limit leaves less than is missing: what other processes give back is of no use.
  bool over_limit = false;
  // What the framework may hold, where it refused the request for that: nobody asked the driver. 0: it did
  // not.
  uint64_t framework_limit = 0;
  // Whether the caller can unwind and try again under another plan.
  bool may_unwind = true;
  CaptureState capture = CaptureState::kNone;
  Guarantee allowed = Guarantee::kStatisticsChange;  // weakest guarantee that the program accepts
  uint32_t attempt = 0;                              // 0 for the first run of the ladder for this request
  std::chrono::steady_clock::time_point deadline;
};

}  // namespace spillway
