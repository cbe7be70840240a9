// A strategy makes room for one request. The ladder (strategies/) orders strategies by cost and calls them;
// the allocator declares the interface so that it depends on nobody.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "allocator/request/pending_request.h"

namespace spillway {

// What a strategy needs before it may run, as bits.
enum Needs : uint32_t {
  kNeedsNothing = 0,
  kNeedsIdleDevice = 1,     // waits until the device has no work
  kNeedsGate = 2,           // launches held while mappings change
  kNeedsFrameworkLock = 4,  // takes a lock of the framework's: refused where one may be held
  kNeedsRanks = 8,          // every rank must agree
  kNeedsUnwinding = 16,     // the step unwinds, is undone and redone
};

// Whose requests a strategy can serve, as bits.
enum Serves : uint32_t {
  kServesAllocator = 1,      // blocks of Spillway's
  kServesDriverCallers = 2,  // another library's call of the driver
};

struct StrategyInfo {
  std::string_view name;
  Guarantee guarantee = Guarantee::kBitExact;
  uint32_t needs = kNeedsNothing;
  uint32_t serves = kServesAllocator;
};

// What a relief takes: the ladder uses up each before it goes to the next.
enum class Takes : uint8_t {
  kIdle,         // what nobody in this process uses
  kOthersIdle,   // what other processes say that they do not use
  kInUse,        // what the program works with, or keeps for a reason of its own
  kSpeculative,  // nobody says that there is anything
  kSlow,         // what the program works with, and would make it slower than its user wants: `why_not`
};

struct Offer {
  uint64_t bytes = 0;  // what it expects to free or make usable; 0: nothing to offer, it is not called
  uint64_t cost_us = 0;
  // The bytes are there, and not only hoped for: if they are not gained then, something failed, perhaps only
  // once.
  bool counted = true;
  Takes takes = Takes::kInUse;
  char why_not[128] = "";  // it could, and will not, or only as the last resort: for the report
};

struct Relief {
  uint64_t bytes = 0;        // measured, not promised
  bool unwind = false;       // the request can only be served after the caller unwinds and changes its plan
  const char* detail = "";   // static or owned by the strategy; shown in the report
  const char* why_not = "";  // of 0 bytes, where the reason is known: the same
};

// Thread-safety: `offer` and `relieve` are called from the thread whose request failed, one ladder at a time
// per device, without any lock of the allocator's. Errors: a strategy never throws; one that fails returns no
// bytes.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual StrategyInfo info() const noexcept = 0;
  // What it could do now. Makes no CUDA call but such that only tell of a device, which wait for nothing and
  // are allowed in captures. Asked once when the ladder starts and again after each step.
  virtual Offer offer(const PendingRequest& request) noexcept = 0;
  virtual Relief relieve(PendingRequest& request) noexcept = 0;
};

enum class LadderOutcome : uint8_t { kGranted, kUnwind, kGiveUp };

// Called by the allocator, without its lock, when a request failed.
class OomHandler {
 public:
  virtual ~OomHandler() = default;
  // Makes room for the request and retries it. `kGranted`: it waits no longer.
  virtual LadderOutcome handle(PendingRequest& request) noexcept = 0;
  // Runs `work` on this thread while nothing runs on any device and nothing can begin. False: it could not
  // come to that until the deadline, and `work` was not run.
  virtual bool at_rest([[maybe_unused]] const std::function<void()>& work,
                       [[maybe_unused]] std::chrono::steady_clock::time_point deadline) noexcept {
    return false;
  }
};

}  // namespace spillway
