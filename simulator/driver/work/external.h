// Work that ends when somebody outside says so, such as a collective that other processes have to join: what
// streams and events depend on, and the host's waits for it. On the virtual clock such work has its place and
// its duration like any other, so other processes move no clock; a wait of the host that covers it also waits
// until it has really ended.
//
// Thread-safety: the lists are used under the simulator's lock. The functions that wait give up the lock of
// the thread's Call meanwhile: handles that were found before have to be found again. Ownership: an External
// is shared by all that depends on it; when the last one has gone, the program's part is released as soon as
// the thread gives up the lock, since it may call the driver. Errors: CUDA_ERROR_LAUNCH_FAILED for work that
// will never end. Units: virtual ns; ms of real time.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/simulator_control.h"

namespace spillway::simulator {

struct Device;
struct Stream;

class External {
 public:
  explicit External(const SpillwayExternalWork& work);
  ~External();
  External(const External&) = delete;
  External& operator=(const External&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Without the lock.
  SpillwayExternalState wait(int64_t timeout_ms);
  void begin() const {
    if (work_.begin) work_.begin(work_.argument);
  }
  // Whether it may write bytes that null mode then knows.
  bool may_tell(uint64_t address, uint64_t bytes) const;
  // The one long wait that queries may make for this work: true once.
  bool take_patience() { return !impatient_.exchange(true); }

 private:
  SpillwayExternalWork work_;
  std::vector<SpillwayRange> small_writes_;
  std::atomic<bool> ended_{false}, impatient_{false};
};

using Externals = std::vector<std::shared_ptr<External>>;

// Adds what has not ended, and drops what has.
void join(Externals& to, const Externals& from);
// What the host waits for when it waits for the stream.
Externals pending(const Stream& stream);
Externals pending_anywhere();

CUresult settle(const Externals& works);

// The stream of a handle, when everything that it depends on has ended.
CUresult find_settled_stream(CUstream handle, Stream** out);
// In null mode a copy of a few bytes that work from outside may bring waits for them.
CUresult settle_to_read(CUstream handle, uint64_t source, uint64_t bytes, Stream** out);
// In null mode: waits a while for whatever may bring these bytes, on whichever stream. Takes the machine's
// lock, but not while it waits. By operators whose stream is ordered behind that work; if it is not,
// what they read is anybody's guess.
void await_bytes(uint64_t address, uint64_t bytes);
// In computing mode nothing from outside is on its way to any memory afterwards.
void settle_to_unmap();

// Whether work that is over at `time` on the virtual clock and depends on `works` is complete. A thread that
// submits work goes by the virtual clock, so that its runs repeat: before `time` the answer is no, afterwards
// yes, for which it waits a while where the others are late. A thread that only looks on, such as a watchdog,
// moves no clock and goes by what has really happened.
CUresult query(uint64_t time, const Externals& works);
// The same for a watchdog that asks about an event of a stream.
CUresult query_by_watchdog(uint64_t stream, uint64_t time, const Externals& works);

}  // namespace spillway::simulator
