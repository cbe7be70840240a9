// Moving the memory of live blocks to another tier, at the same address, and back. Kernels can use it there
// too, more slowly: a wrong choice costs time and no value. Whole pages only, of blocks that nobody else
// maps, in the default pool; to the host also pages on which several such blocks lie.
//
// A block that the program registered and does not use at the moment can also go to a file: its addresses
// stay reserved with nothing behind them, until the program says that it uses it again.
//
// Thread-safety: any thread; `unspill` and `evict_guests` while nothing runs on any device and the gate is
// closed. The rest makes no CUDA call but where it says so. Units: bytes, microseconds.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "allocator/tiers/choice/block_access.h"
#include "allocator/tiers/choice/pins.h"
#include "allocator/units.h"
#include "base/backoff.h"
#include "processes/ledger_entry.h"

namespace spillway {

class Allocator;

// Where to, and how much of it at most: what is there of this process already counts.
struct SpillPlace {
  Tier tier = Tier::kHost;
  DeviceId peer{};  // kPeer
  uint64_t most_bytes = 0;
  // kNvme: returns when what was queued before is over, on every device; false: it does not end.
  std::function<bool()> come_to_rest{};
  bool part = false;  // less than the request needs is of use: another strategy does the rest
};

struct SpillEstimate {
  uint64_t useful_bytes = 0;   // 0: spilling would not serve the request
  uint64_t needed_bytes = 0;   // pages that only spilling could free
  uint64_t movable_bytes = 0;  // of blocks that may go, at most about as much as is needed
  uint64_t bytes = 0;          // of these, what the place takes
  double bytes_per_us = 0;     // of the way there, as measured; until then a first guess
  double make_us = 0;          // to make the memory there that is not at hand
  double slowdown = 1;  // expected time per step ÷ that without what is spilled; 1 where nothing is known
  double measured = 0;  // the same as it is now; 0 where that is not known
};

struct SpillResult {
  uint64_t bytes = 0;    // for the request, idle ones too
  bool refused = false;  // it ended early: the driver had no memory in the other tier
};

// What must stay where it is: asked once for each choice of blocks, under a device's lock, and so must call
// nothing of the allocator's. Set before the first request; null: nothing must.
void set_pins(Allocator& allocator, Pins (*pins)()) noexcept;
// Returns when nothing that is pinned by now moves any more: moves that are under way have ended, and those
// that were only chosen leave it out.
void wait_for_moves(Allocator& allocator) noexcept;

// The block that begins at `address` is about to be used by work that is queued after this call.
void touch(Allocator& allocator, uint64_t address, const BlockAccess& access = {}) noexcept;

// Host memory that blocks have left, or that was made ahead: a device keeps it for its next spills. Of all
// devices but `except`; and that one's own.
uint64_t others_kept_host_bytes(Allocator& allocator, DeviceId except) noexcept;
uint64_t kept_host_bytes(Allocator& allocator, DeviceId device) noexcept;
// It goes back to the driver, but for that of `except`.
void release_host_memory(Allocator& allocator, DeviceId except) noexcept;
// Makes some of what the device's next spill is expected to take, at most `most_bytes`; it takes the driver
// about 10 ms. False: nothing more is wanted or can be had.
bool make_host_memory_ahead(Allocator& allocator, DeviceId device, uint64_t most_bytes) noexcept;
// Called, by any thread and under no lock, when a device is expected to spill and has too little host memory
// for that. Null: nobody makes any ahead.
void set_host_memory_need(Allocator& allocator, void (*call)()) noexcept;
// Another device whose memory this one's kernels can use, atomic operations too.
struct Peer {
  DeviceId device{};
  uint64_t total_bytes = 0;
  DeviceUuid uuid{};
};
struct Peers {
  bool others = false;           // the process has other devices
  bool without_atomics = false;  // one of them could be reached, but for atomic operations
  std::vector<Peer> reachable;
};
// As they were when the device's memory first became short, or access was last granted.
Peers peers_of(Allocator& allocator, DeviceId device) noexcept;
// Whether something in the process has a context on the device. Asks the driver.
bool has_context(Allocator& allocator, DeviceId device) noexcept;
// What lies on `device` of blocks that belong to other devices of this process: guests.
uint64_t guest_bytes(Allocator& allocator, DeviceId device) noexcept;
// What the limit of `device` leaves for guests; UINT64_MAX where there is none.
uint64_t guest_room_bytes(Allocator& allocator, DeviceId device) noexcept;
// While nothing runs and the gate is closed: at least `bytes` of the guests on `device` go to host memory, of
// which they may take `most_host_bytes`, and home where that does not do. Returns the bytes that went.
uint64_t evict_guests(Allocator& allocator, DeviceId device, uint64_t bytes,
                      uint64_t most_host_bytes) noexcept;

// Of every device of this process.
uint64_t spilled_bytes(Allocator& allocator, Tier tier) noexcept;
// Registered blocks may go to a file in `folder`, of at most `most_bytes`. Before the first request. False:
// no file can be made there, and `why_not`. `now`: by which a disk that was full is tried again.
bool use_page_file(Allocator& allocator, const std::string& folder, uint64_t most_bytes, std::string* why_not,
                   Backoff::Now now = &std::chrono::steady_clock::now);
// What the file still takes, for a while after a refusal no more than it had taken then; 0 without one.
uint64_t file_room_bytes(Allocator& allocator) noexcept;
// Why the last write to it failed; "": it did not.
std::string file_trouble(Allocator& allocator);
// How many times as long the program's steps take with what is elsewhere as without.
struct Slowdown {
  double predicted = 1;      // by the uses that are seen and the links; 1: nothing is elsewhere
  double measured = 0;       // by the steps' times; 0: not known
  double now = 1;            // measured where it is known, else predicted
  uint64_t steps = 0;        // that were timed since blocks went
  uint64_t step_orders = 0;  // allocations and frees in a step
};
Slowdown slowdown_of(Allocator& allocator, DeviceId device) noexcept;
// Blocks come back as soon as the need of a few steps leaves room for them; or, false, as usual.
void hurry_returns(Allocator& allocator, DeviceId device, bool hurried) noexcept;
// Of blocks that are elsewhere, what is used so much more than others on the device that it should be there
// instead; and that they change places, while nothing runs and the gate is closed. `where`: for the others.
uint64_t exchangeable_bytes(Allocator& allocator, DeviceId device, const SpillPlace& where) noexcept;
uint64_t exchange(Allocator& allocator, DeviceId device, const SpillPlace& where) noexcept;
// Whether steps are timed: not where the device's times mean nothing. Before the first request; as a rule
// they are.
void time_steps(Allocator& allocator, bool timed) noexcept;
// The program says that a step begins.
void begin_step(Allocator& allocator) noexcept;
// Bytes of blocks that are elsewhere and could come back, with room left for the most that the device needed
// since the last spill; 0 until that is long enough ago.
uint64_t returnable_bytes(Allocator& allocator, DeviceId device) noexcept;
// Brings those back, the most used first. Returns the bytes; after 0 nothing is returnable for a while.
uint64_t unspill(Allocator& allocator, DeviceId device) noexcept;
// As after an attempt in vain.
void postpone_return(Allocator& allocator, DeviceId device) noexcept;

}  // namespace spillway
