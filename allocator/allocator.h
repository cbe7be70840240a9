// The allocator: blocks of device memory, cached by device, pool and stream, on pages that it maps itself.
//
// Thread-safety: every member may be called from any thread; each device has a lock of its own, and no driver
// call is made under it. Ownership: blocks belong to the caller until freed; the table, the trace and the
// handler must outlive the allocator. The destructor gives everything back and is for tests: a process keeps
// its allocator for ever. Errors: values, never exceptions; running out of memory is `kOutOfMemory` or
// `kUnwind`, and no other error of the driver's ever becomes one of these. After any error the state is as if
// the call had not been made. Units: bytes. Fork: in a child every request is refused and every free is a
// no-op: CUDA does not survive a fork.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/accounting/memory.h"
#include "allocator/accounting/observer.h"
#include "allocator/accounting/process_totals.h"
#include "allocator/accounting/site.h"
#include "allocator/accounting/usage.h"
#include "allocator/request/oom_event.h"
#include "allocator/request/strategy.h"
#include "allocator/sharing/shared.h"
#include "allocator/tiling/pool.h"
#include "allocator/units.h"
#include "base/mutex.h"
#include "driver/table.h"
#include "trace/writer.h"

namespace spillway {

class DeviceHeap;
struct AllocatorContext;
struct HandleRule;

enum class Status : uint8_t {
  kOk,
  kInvalid,       // an argument
  kNotFound,      // no such block or device
  kOutOfMemory,   // not served, and the handler gave up
  kUnwind,        // not served: unwind, change the plan, try again
  kUnavailable,   // no virtual memory management on this device, or a forked child
  kDriverFailed,  // the driver refused for another reason than memory
  kFileFailed,    // what lies in a file could not be read back; it may be later
};

struct Request {
  uint64_t bytes = 0;
  StreamId stream{};
  uint64_t pool = 0;    // 0: the device's default pool
  uint64_t padded = 0;  // what the block takes at least, counted as rounding
};

// Why a request was not served.
struct Failure {
  OomEvent event;  // kOutOfMemory and kUnwind
  Memory memory;   // at the moment of failure
  std::string text;
};

// Made only when there is a failure, so that a hit pays nothing for it.
using FailurePtr = std::unique_ptr<Failure>;

enum class BlockUse : uint8_t { kFree, kLive, kPending };

struct BlockInfo {
  DeviceId device{};
  uint64_t address = 0, bytes = 0, requested_bytes = 0;
  StreamId stream{};
  uint64_t pool = 0;
  BlockUse use = BlockUse::kFree;
  uint64_t segment = 0;  // where the allocation begins that it lies in; 0: on pages, or not asked for
};

// What a free took back.
struct FreedBlock {
  DeviceId device{};
  uint64_t bytes = 0, requested_bytes = 0;
  StreamId stream{};
  uint64_t pool = 0;
};

struct DeviceUsage {
  UsageLevels all, small, large;
  uint64_t maps = 0, unmaps = 0;  // ranges of pages, since the last reset_totals
};

class Allocator {
 public:
  static constexpr int kMaxDevices = 64;

  explicit Allocator(const driver::Table& table);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Called when a request cannot be served; null: requests fail at once. Set before the first request.
  void set_handler(OomHandler* handler) noexcept;
  void set_trace(trace::Trace* trace) noexcept;
  // What the process takes and may take, beside its devices' limits; null: only those count. Set before the
  // first request; must outlive the allocator.
  void set_budget(spillway_budget* budget) noexcept;
  const spillway_budget* budget() const noexcept;
  // How large the driver's allocations are. Set before the first request.
  void set_handle_rule(const HandleRule& rule) noexcept;
  // From now on told of every change; null: nobody is. Costs requests nothing while there is none.
  void set_observer(Observer* observer) noexcept;
  // Called once, on a thread that allocates, when memory becomes short: from then on it helps to say which
  // blocks are used (`touch`, tiers.h). Null: nobody is.
  void set_pressure(void (*call)()) noexcept;
  // Lets go of memory that others only keep, before the handler is called: on a thread whose request is
  // short, without a lock of the allocator's, and not while the request's stream is captured. It may free
  // blocks and set limits, and asks for no block. Null: nobody does.
  void set_collector(void (*collect)(int32_t device)) noexcept;
  trace::Trace* trace() const noexcept;
  const driver::Table& table() const noexcept;

  // A block of at least `request.bytes` for use on `request.stream`; 0 bytes give a null address. The
  // device's primary context must be current. `failure` (which may be null) is made on any other status than
  // kOk.
  Status allocate(DeviceId device, const Request& request, uint64_t* address, FailurePtr* failure) noexcept;
  // The block becomes free in the order of its stream, and after what is now queued on the streams that it
  // was recorded on. kNotFound, and nothing changes, for what is no live block.
  Status free(uint64_t address, FreedBlock* freed) noexcept;
  Status free(uint64_t address) noexcept {
    FreedBlock unread;
    return free(address, &unread);
  }
  // `stream` may be another device's; a default stream is that of the context that is current.
  Status record_stream(uint64_t address, StreamId stream) noexcept;
  // As `allocate`, at an address that lies whole in one of the pool's holes of that
  // stream; else kNotFound, and nothing changes. Never asks the driver or the handler.
  Status allocate_at(DeviceId device, const Request& request, uint64_t address) noexcept;
  // The block that holds `address`, its first byte or any other.
  Status find_block(uint64_t address, BlockInfo* out) noexcept;
  Status blocks(DeviceId device, std::vector<BlockInfo>* out) noexcept;

  // The place of the program that allocated a live block, by the number of its text in the trace; `bytes`:
  // what the block stands for where only some are sampled. Noted in the trace, and until the block is freed.
  // kUnavailable: there was no memory to note it.
  Status set_site(uint64_t address, uint64_t site, uint64_t bytes) noexcept;
  // What each such place holds now, largest first; none where there was no memory to say it.
  std::vector<SiteHolding> holders(DeviceId device) noexcept;

  // Gives idle pages back to the driver, waiting for the streams that used them last; returns their bytes.
  // `pool`: only that pool's, which must have been released, or 0, the default pool's; a pool's other pages
  // stay. `most_bytes` is rounded up to whole pages; a handle that is larger stays.
  uint64_t empty_cache(DeviceId device, uint64_t pool = kEveryPool,
                       uint64_t most_bytes = UINT64_MAX) noexcept;
  // The pages behind the block that begins at `address`, for other processes. What lies in another tier comes
  // back first, for which the handler may make room: kOutOfMemory where there is none, kFileFailed, or
  // kInvalid where it must stay or nothing can be moved now. `text`: why not.
  Status share(uint64_t address, SharedBlock* out, std::string* text) noexcept;
  // A descriptor of its own for who asks, while the page is shared; else -1.
  int shared_descriptor(uint64_t serial) noexcept;
  // Maps another process's pages, one after the other; the descriptors stay the caller's. `device` must be
  // theirs.
  Status map_shared(DeviceId device, std::span<const SharedPage> pages, uint64_t* address,
                    std::string* text) noexcept;
  // When nothing on the device can use them any more: waits for all that is queued, and while something is
  // being captured leaves them mapped until the next call of these two.
  Status unmap_shared(uint64_t address) noexcept;
  // Kernels and copies on `peer` may use the memory of `owner`, what is mapped and what will be. The devices
  // must be able to: cuDeviceCanAccessPeer.
  Status grant(DeviceId owner, DeviceId peer, std::string* text) noexcept;

  // Sets what holds for a private pool, PoolFlags; 0 until it is set. kInvalid: kPoolSingleHandle comes or
  // goes too late. A number may be used again only after everything in it was freed.
  Status set_pool(DeviceId device, uint64_t pool, uint32_t flags) noexcept;
  // What every device started from now on, and each already started, may use; 0: all that the driver gives.
  // Pages that are idle and too many are given back. What is live stays: requests that need more pages fail
  // until enough is freed.
  void limit_all(uint64_t bytes) noexcept;
  Status limit(DeviceId device, uint64_t bytes) noexcept;
  // Of a device that has not been used only what it has and may give is known, and no context is made for it.
  Status memory(DeviceId device, Memory* out, std::optional<uint64_t> driver_free = std::nullopt) noexcept;
  // All zeros for a device that has not been used.
  DeviceUsage usage(DeviceId device) noexcept;
  Status reset_peaks(DeviceId device) noexcept;
  Status reset_totals(DeviceId device) noexcept;

  // Fails the n-th request from now (1 = the next) at the entry, and every later one if `persistent`; 0: off.
  // An injected failure goes the way of a real one: the handler is called, and the request is only tried
  // again after a step of the handler's (never, if persistent). Returns how many requests were failed since
  // the last call.
  uint64_t fail_request(uint64_t n, bool persistent) noexcept;
  uint64_t requests() const noexcept;
  // The number of a new incident, and the end of one: for other libraries' calls of the driver.
  uint64_t begin_incident() noexcept;
  void end_incident(Status status, uint64_t bytes, uint64_t us) noexcept;
  // Where incidents are counted from now on, with atomic additions; must outlive the allocator.
  void count_incidents(spillway_incident_totals* totals) noexcept;
  // Whether the device has been used, and so has an account.
  bool uses(DeviceId device) const noexcept { return started(device) != nullptr; }
  // Of a device that has not been started; 0: none.
  uint64_t default_limit() noexcept;
  // Blocks of which the program says when it uses them; see tiers.h.
  Status add_block(uint64_t address, uint64_t bytes) noexcept;
  Status touch_block(uint64_t address, FailurePtr* failure) noexcept;
  Status done_block(uint64_t address) noexcept;
  Status remove_block(uint64_t address, FailurePtr* failure) noexcept;
  // Every invariant of every device; false and the first broken one.
  bool check_invariants(std::string* broken) noexcept;

  // Writes each device's live, held and peak bytes to the trace, if one is open.
  void sample_memory() noexcept;
  // A place in the order of all records: greater than every record's so far, smaller than every later one's.
  uint64_t next_order() noexcept;
  // The device's heap, made on first use; null and a text when the device cannot be used.
  DeviceHeap* heap(DeviceId device, Status* status, std::string* text) noexcept;

  // For the allocator's own parts.
  AllocatorContext& context() noexcept { return *context_; }

 private:
  DeviceHeap* started(DeviceId device) const noexcept;

  const std::unique_ptr<AllocatorContext> context_;
  std::array<std::atomic<DeviceHeap*>, kMaxDevices> heaps_{};
  Mutex<LockOrder::kAllocatorStart> start_mutex_;
  Mutex<LockOrder::kObserver> obprovider_mutex_;  // so that no device misses it
  uint64_t default_limit_bytes_ SPILLWAY_GUARDED_BY(start_mutex_) = 0;
  std::atomic<uint64_t> order_base_{0};
};

}  // namespace spillway
