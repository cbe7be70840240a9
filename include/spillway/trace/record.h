// The event record and the layout of a trace file.
//
// A trace file is a header, a directory of rings, the rings (one per live thread, reused after its exit), and
// side tables (stacks, names, settings) that only grow. Its whole space is allocated before it is mapped, so
// a full disk is an error at the start and never a SIGBUS later. Every record carries the stamp of its place
// in its ring, written last, so that a reader tells a whole record from a torn or an old one, whatever
// instant a SIGKILL came at. All integers are little-endian. A reader trusts nothing in the file.
#pragma once
#include <atomic>
#include <cstdint>

namespace spillway::trace {

inline constexpr uint64_t kMagic = 0x31305941574C4C53ull;
inline constexpr uint32_t kVersion = 1;

// What happened. The comment says what `address`, `bytes`, `requested`, `stream`, `value` and `detail` hold
// where that is not plain from the name. Numbers are part of the file format: append, never renumber.
enum class Kind : uint16_t {
  kNone = 0,
  kAllocate = 1,        // address, bytes (rounded), requested, stream; detail: stack or 0
  kFree = 2,            // address, bytes, requested, stream
  kFreePending = 3,     // the free waits for events on other streams
  kSegmentReserve = 4,  // address, bytes
  kSegmentRelease = 5,
  kPageCreate = 6,  // bytes; value: CUresult; detail: handle
  kPageMap = 7,     // address, bytes; value: CUresult
  kPageUnmap = 8,
  kPageRelease = 9,
  kDriverFailure = 10,  // bytes; value: CUresult; detail: name
  kOom = 11,  // requested, bytes (rounded), stream; address: bytes short; value: incident; detail: ns clock
  kOomEquation = 12,    // one term of the closing equation: bytes; value: incident; detail: Term
  kLadderStep = 13,     // bytes measured; requested: bytes offered; address: µs; value: incident; detail:
                        // strategy name; flags: 1 + its Guarantee, 0 where that is not known
  kLadderOutcome = 14,  // bytes gained; requested: bytes asked; address: µs; value: incident; detail: Outcome
  kPhase = 15,          // detail: name
  kStepBegin = 16,      // value: low 32 bits of step; address: step; bytes: attempt; requested: plan hash
  kStepEnd = 17,        // the same; detail: tokens
  kPlanChange =
      18,  // address: step; bytes: old plan hash; requested: new; value: incident; detail: name (reason)
  kMemory = 19,  // a sample: address: live; bytes: reserved; requested: limit; stream: peak reserved
  kNote = 20,    // detail: name
  kOomContext =
      21,  // of kOom's incident: address: pool; bytes: attempt; value: incident; detail: name of the library
};

// Terms of: limit = live + rounding + stranded + cached + pending + pools + context + others + free.
enum class Term : uint64_t {
  kLimit = 0,
  kLive = 1,
  kRounding = 2,
  kStranded = 3,
  kCached = 4,
  kPending = 5,
  kPools = 6,
  kContext = 7,
  kOthers = 8,
  kFree = 9,
  kLargestExtent = 10,
  kDevice = 11,  // no terms of the sum; kDevice: all that the card has, whatever the limit
};

enum class Outcome : uint64_t { kGranted = 0, kUnwind = 1, kGiveUp = 2 };

struct alignas(64) Record {
  uint64_t stamp = 0;  // 1 + the record's number in its ring; written last
  uint64_t order = 0;  // the heap's own counter: orders the records of all threads
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested = 0;
  uint64_t stream = 0;
  uint64_t detail = 0;  // an index into a side table, a clock in ns, or as `Kind` says
  uint32_t value = 0;
  Kind kind = Kind::kNone;
  uint8_t device = 0;
  uint8_t flags = 0;  // 0 unless `Kind` says otherwise
};
static_assert(sizeof(Record) == 64);

}  // namespace spillway::trace
