// The simulated machine: devices, contexts, streams, events, and everything that hangs on them, behind one
// lock.
//
// Thread-safety: `machine()` is there from the first call on and never goes away; its members are used under
// `machine().mutex`, which a Call holds. Ownership: Machine owns all. Errors: CUresult. Units: bytes, virtual
// ns.
#pragma once
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "simulator/driver/graph/graph.h"
#include "simulator/driver/machine/config.h"
#include "simulator/driver/memory/account.h"
#include "simulator/driver/memory/address_space.h"
#include "simulator/driver/memory/host_memory.h"
#include "simulator/driver/memory/managed.h"
#include "simulator/driver/memory/physical.h"
#include "simulator/driver/process/destroyed.h"
#include "simulator/driver/process/faults.h"
#include "simulator/driver/process/referee.h"
#include "simulator/driver/process/shared_machine.h"
#include "simulator/driver/process/watchdog.h"
#include "simulator/driver/work/clock.h"
#include "simulator/driver/work/external.h"
#include "simulator/driver/work/known_bytes.h"
#include "simulator/driver/work/uncomputed.h"

namespace spillway::simulator {

struct Device;
struct Context {
  Device* device = nullptr;
  unsigned flags = 0;
  unsigned retains = 0;    // of a primary context
  bool destroyed = false;  // stays, as streams and other threads may still name it
  std::array<size_t, CU_LIMIT_MAX> limits{1024, 1 << 20,
                                          8 << 20};  // stack, printf FIFO, heap as on the real card
};

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

struct Stream : Lane {
  Context* context = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  Site site = nullptr;
  Externals outside;           // what it depends on beyond the clock
  Capture* capture = nullptr;  // whose graph it adds to
  std::vector<Node*> tips;     // what the next captured work depends on
  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
};

struct Event {
  Context* context = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  bool recorded = false;
  uint64_t time = 0;
  uint64_t stream = 0;
  Externals outside;
  uint64_t capture = 0;     // the capture in which it was last recorded, 0: none
  std::vector<Node*> tips;  // valid while that goes on: what a wait for it depends on
  Site site = nullptr;
};

// A stream-ordered memory pool. It keeps what is freed for its next allocations, of any size, since it maps
// pages anew; what it keeps beyond its threshold it gives back at the next synchronisation.
struct Pool {
  struct Freed {
    uint64_t bytes, end;  // in use until then
  };
  Device* device = nullptr;
  uint64_t used_bytes = 0, used_high_bytes = 0;          // as asked for
  uint64_t reserved_bytes = 0, reserved_high_bytes = 0;  // charged: pages of allocations, and what is kept
  std::vector<Freed> kept;                               // oldest first
  uint64_t release_threshold_bytes = 0;
  std::array<int, 3> reuse{1, 1, 1};  // the three reuse switches, which change nothing here
};

struct Device {
  Device(int number, int place) : ordinal(number), physical(place), file(number) {}
  int ordinal;   // what the program calls it
  int physical;  // its place in the machine: CUDA_VISIBLE_DEVICES hides and reorders
  Account account;
  Context primary;
  int active_contexts = 0;
  BackingFile file;
  Stream legacy;                                                     // the default stream
  std::unordered_map<uint64_t, std::unique_ptr<Stream>> per_thread;  // by thread token
  uint64_t blocking_end = 0;  // of all work on streams that wait for the default stream and make it wait
  uint64_t last_end = 0;      // of all work
  Externals blocking_outside, outside;  // of the same
  KnownBytes known;
  Lane h2d, d2h, d2d, peer;
  uint32_t peers = 0;  // devices whose cuMemAlloc memory it may use
  Pool default_pool;
  Pool* pool = &default_pool;
  Pool graph_pool;  // of all graphs' allocation nodes: it keeps what is freed until it is trimmed
};

struct Counters {
  uint64_t launches = 0, copies = 0, copied_bytes = 0, stall_ns = 0;
  uint64_t to_device_bytes = 0, to_host_bytes = 0;  // copied over the link to the host
  uint64_t assumed_sizes = 0;                       // read as the most that they can be
  uint64_t acting_calls = 0;  // that do not only ask, of threads that do not only look on
  std::array<uint64_t, kFunctions> calls{};
};

// Copies from devices to the host. The program may decide by small ones; bulk ones are taken as data.
struct HostReads {
  uint64_t small_copies = 0, small_bytes = 0, bulk_copies = 0, bulk_bytes = 0;
};

// Where a library's code is.
struct CodeRange {
  uintptr_t begin = 0, end = 0;
  bool holds(Site site) const {
    const auto address = reinterpret_cast<uintptr_t>(site);
    return address >= begin && address < end;
  }
};

// What a program from outside is told when its work is not needed any more.
struct Release {
  void (*function)(void* argument);
  void* argument;
};

using MachineMutex = Mutex<LockOrder::kSimulatedMachine>;

struct Machine {
  MachineMutex mutex;
  std::atomic<bool> forked{false};  // the child of a process that had called cuInit
  std::atomic<bool> initialised{false};

  CodeRange runtime_code;  // of the simulated libcudart, if the program uses one; constant from cuInit on
  Config config;
  Clock clock;
  Faults faults;
  Latencies latencies;
  Referee referee;
  Counters counters;
  Watchdog watchdog;
  std::map<Site, HostReads> host_reads;  // by who asked
  UncomputedKernels uncomputed;
  std::string other_runtime;  // the file whose CUDA runtime is not the simulated one, if a call came from one
  SharedMachine shared;       // with other processes, if that was asked for
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<PhysicalMemory> physical;  // from cuInit on
  AddressSpace space;
  HostMemory host;
  ManagedMemory managed;
  std::unordered_set<Context*> contexts;                // those of cuCtxCreate
  std::map<uint64_t, std::unique_ptr<Stream>> streams;  // of the program, by id
  std::unordered_set<Stream*> stream_handles;
  std::map<uint64_t, std::unique_ptr<Event>> events;
  std::unordered_set<Event*> event_handles;
  DestroyedHandles destroyed;       // none is noted where using them is an error like others
  std::unordered_set<Pool*> pools;  // those of cuMemPoolCreate
  Graphs graphs;
  std::vector<Release> releases;  // due when the lock is given up
  uint64_t next_id = 1;           // of streams and events

  CUresult initialise();  // with the lock held
  // Opens the machine that SPILLWAY_SIM_MACHINE names, if it names one; false when it is none, which is said.
  bool join_others();
  Device* device(int ordinal);
};

Machine& machine();

// A number for the calling thread.
uint64_t thread_token();

// The current context of the calling thread, null if none.
Context* current_context();

// The current contexts of a thread. Without a destructor: a program's exit handlers call the driver too,
// after the thread's other locals are gone.
class ContextStack {
 public:
  bool empty() const { return size_ == 0; }
  Context* back() const { return entries_[size_ - 1]; }
  bool push(Context* context) {
    if (size_ == entries_.size()) return false;
    entries_[size_++] = context;
    return true;
  }
  void pop() { --size_; }
  void remove(const Context* context) {
    size_ = std::remove(entries_.begin(), entries_.begin() + size_, context) - entries_.begin();
  }

 private:
  std::array<Context*, 128> entries_{};
  size_t size_ = 0;
};
ContextStack& context_stack();

// Null: it is none now. Where the machine is such, a destroyed one's use is the process's end.
Event* find_event(CUevent handle);

// The stream that a handle means here: default streams by the current context.
CUresult find_stream(CUstream handle, Stream** out);
inline CUstream per_thread(CUstream stream) {
  return stream ? stream : CU_STREAM_PER_THREAD;
}

// Whether the calling thread has put work on a stream; otherwise it only looks on, as a watchdog always does,
// though what it frees may record events.
bool thread_acts();
void note_action();  // the calling thread puts work on a stream

// Puts work on a stream, and on a copy engine if there is one, behind all that it has to wait for.
Interval place(Stream& stream, Lane* engine, uint64_t duration_ns);

}  // namespace spillway::simulator
