// Why a request failed, in one line, decided from the terms of the closing equation.
//
// With room = limit − context − others − reserve, what a perfect allocator could use:
//   0. The largest usable extent holds the request: not memory, but a driver's refusal or a failure that a
//   test made.
//   1. live + request ≤ room: the bytes are there. Where they are below a limit, and the card has more →
//   limit:
//      pages are taken as a whole. Else the largest of three holds them:
//        pending → pending frees; pools → pool isolation; stranded + cached + rounding + free →
//        fragmentation.
//   2. Else the request exceeds room by some excess, and the verdict names the first that covers it:
//        reserve → reserve; device − limit → limit; others → other processes;
//        context, if it is more than a tenth of the limit → outside bytes.
//   3. Else capacity.
// Pure functions; any numbers are answered, also absurd ones.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "allocator/accounting/memory.h"

namespace spillway {

enum class Cause {
  kUnknown,
  kCapacity,
  kFragmentation,
  kPendingFrees,
  kPoolIsolation,
  kLimit,
  kReserve,
  kOtherProcesses,
  kOutsideBytes,
  kNotMemory,
  kPyTorch,         // PyTorch's own allocator, or another library of its
  kAnotherLibrary,  // no request of Spillway's allocator: told by who asked, not by the equation
  kHostMemory,      // pinned host memory was asked for, and not the card's
  // Told by the history of allocations, not by one equation.
  kLeak,    // each step keeps blocks that it made
  kGrowth,  // what is in use is replaced by something larger, again and again
};

struct Verdict {
  Cause cause = Cause::kUnknown;
  std::string text;  // one line, with the bytes that decided it
};

// `request_bytes`: rounded. `largest_extent_bytes`: of what could be had at once, where that is known.
Verdict judge(const Memory& memory, uint64_t request_bytes, std::optional<uint64_t> largest_extent_bytes);
const char* cause_name(Cause cause);

std::string size_text(uint64_t bytes);  // "1.50 GiB", "512 B"

}  // namespace spillway
