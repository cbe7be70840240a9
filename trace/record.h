// The event record and the layout of a trace file.
//
// A trace file is a header, a directory of rings, a side table (stacks, names, settings) that only grows, and
// the rings: one for rare events, and one per live thread, reused after its exit. Its whole space is
// allocated before it is mapped, so a full disk is an error at the start and never a SIGBUS later. Every
// record carries the stamp of its place in its ring, written last, so that a reader tells a whole record from
// a torn or an old one, whatever instant a SIGKILL came at. All integers are little-endian. A reader trusts
// nothing in the file.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace spillway::trace {

inline constexpr uint64_t kMagic = 0x31305941574C4C53ull;
inline constexpr uint32_t kVersion = 1;

// What happened. The comment says what `address`, `bytes`, `requested`, `stream`, `value`, `flags` and
// `detail` hold where that is not plain from the name. Numbers are part of the file format: append, never
// renumber. Frequent kinds go to the thread's ring; all others have a ring of their own, so that a report
// finds the first failure of a long run.
enum class Kind : uint16_t {
  kNone = 0,
  // address, bytes (rounded), requested, stream; value: private pool, its low 32 bits, 0 the default one
  kAllocate = 1,
  // address, bytes, requested, stream
  kFree = 2,
  // the same, but the free waits for work of other streams: value: how many; detail: the first of them. 0 of
  // older writers
  kFreePending = 3,
  // address, bytes
  kSegmentReserve = 4,
  kSegmentRelease = 5,
  // bytes; value: CUresult; detail: handle
  kPageCreate = 6,
  // address, bytes; value: CUresult
  kPageMap = 7,
  kPageUnmap = 8,
  kPageRelease = 9,
  // bytes; value: CUresult; detail: name
  kDriverFailure = 10,
  // requested, bytes (rounded), stream; address: bytes short; value: incident; detail: ns clock
  kOom = 11,
  // one term of the closing equation: bytes; value: incident; detail: Term
  kOomEquation = 12,
  // bytes measured; requested: bytes offered; address: µs; value: incident; detail: strategy name;
  // flags: 1 + its Guarantee, 0 where that is not known
  kLadderStep = 13,
  // bytes gained; requested: bytes asked; address: µs; value: incident; detail: Outcome
  kLadderOutcome = 14,
  // detail: name
  kPhase = 15,
  // address: step; value: its low 32 bits; bytes: attempt; requested: plan hash; detail: ns clock, or 0
  kStepBegin = 16,
  // the same, but detail: tokens
  kStepEnd = 17,
  // address: step; bytes: old plan hash; requested: new; value: incident; detail: name (reason)
  kPlanChange = 18,
  // a sample: address: live; bytes: reserved; requested: limit; stream: peak reserved; detail: ns
  // clock, or 0
  kMemory = 19,
  // detail: name
  kNote = 20,
  // of kOom's incident: address: pool; bytes: attempt; requested: name of the phase or 0; value: incident;
  // detail: name of the library or 0
  kOomContext = 21,
  // the memory of a live block, now in another tier: address, bytes; requested: Tier; value: CUresult;
  // detail: the other device, where it is one
  kMove = 22,
  // a strategy that refused to be tried: value: incident; requested: name (why); detail: its name
  kRefusal = 23,
  // where the program allocated the block at address: bytes: what it stands for, where only some are sampled;
  // detail: name (its stack, innermost frame first, a line each, or what the thread was doing)
  kSite = 24,
  // of an incident that was not rescued in place, what a site held then: bytes; requested: blocks;
  // address: place of the oldest one's allocation in the order; value: incident; detail: name, as of kSite
  kHolder = 25,
  // of an incident, the place that asked: value: incident; detail: name, as of kSite
  kOomSite = 26,
  // of an incident of PyTorch's own allocator, what it had in use earlier: address: in use; bytes: held;
  // value: incident; detail: ns clock
  kCourse = 27,
  // of an incident, another process on the device: address: its id; bytes: held; requested: of that cached;
  // value: incident; detail: name (its command)
  kProcess = 28,
  // how many times as long a step takes with memory in other tiers, in thousandths: address: as predicted;
  // requested: as measured, 0 where that is not known; bytes: what lies there
  kSlowdown = 29,
  // an optimizer of the framework begins a step: detail: name; address: how many have begun, with it; 0 of
  // older writers
  kOptimizerStep = 30,
  // of an incident, how many steps optimizers had begun: address; value: incident. None: no such record
  kOomStep = 31,
  // told now and then, what a site holds: bytes; requested: blocks; address: ns clock; detail: name, as of
  // kSite. The last one of that time has flags 1, and what is in use altogether: bytes
  kHeld = 32,
};

// The clock of the records that have one: it never goes back, and its beginning means nothing.
inline uint64_t clock_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

constexpr bool is_frequent(Kind kind) {
  return kind <= Kind::kPageRelease || kind == Kind::kPhase || kind == Kind::kSite ||
         kind == Kind::kOptimizerStep || kind == Kind::kHeld;
}

// Terms of: limit = live + rounding + stranded + cached + pending + pools + context + others + reserve +
// free.
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
  // No terms of the sum.
  kLargestExtent = 10,
  kDevice = 11,       // all that the card has, whatever the limit
  kSpilled = 12,      // in use, but in another tier
  kSpilledPeer = 13,  // of these, on another device
  kSpilledNvme = 14,  // or in a file
  // Of a call for pinned host memory: what the machine, or the process's control group, had available.
  kHostAvailable = 15,
  // A term of the sum where there is one: free, and left to other libraries' requests by SPILLWAY_RESERVE.
  kReserve = 16,
  // Of a request that LibTorch's own allocator refused for a limit of its own, the `kLimit` of its equation:
  // what the driver had free, whatever the limit.
  kDeviceFree = 17,
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
