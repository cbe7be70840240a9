#include "simulator/driver/process/reads.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "simulator/driver/entry/call.h"
#include "simulator/driver/process/report.h"

namespace spillway::simulator {
namespace {

struct Observer {
  SpillwayReadObserver call = nullptr;
  void* argument = nullptr;
};
// Replaced ones are left: another thread may still call them.
std::atomic<const Observer*> observer{nullptr};

// The pages of bulk data would fill the host.
constexpr uint64_t kMostBytes = SPILLWAY_SIMULATOR_SMALL_READ;

uint64_t next_number() {
  static uint64_t state = 0;
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

void set_read_observer(SpillwayReadObserver call, void* argument) {
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* all SPILLWAY_PT_GUARDED_BY(mutex) = new std::deque<Observer>();
  const Locked lock(mutex);
  observer = call == nullptr ? nullptr : &all->emplace_back(call, argument);
}

void note_host_read(const HostRead& read, Site site) {
  HostReads& reads = machine().host_reads[site];
  const bool small = read.bytes <= SPILLWAY_SIMULATOR_SMALL_READ;
  ++(small ? reads.small_copies : reads.bulk_copies);
  (small ? reads.small_bytes : reads.bulk_bytes) += read.bytes;
  if (Call* call = Call::current()) call->read_by_host(read);
}

void note_polling(const HostRead& read) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kMostBytesOfAValue = 8, kMostKernelsBetween = 2, kManyReads = 5000;
  static CUdeviceptr source = 0;
  static uint64_t reads = 0, launches = 0;
  static Clock::time_point first;
  static bool said = false;
  const uint64_t kernels = machine().counters.launches - std::exchange(launches, machine().counters.launches);
  if (read.source != source || read.bytes > kMostBytesOfAValue || kernels > kMostKernelsBetween) {
    source = read.source;
    reads = 0;
    first = Clock::now();
  }
  if (said || ++reads < kManyReads || Clock::now() - first < std::chrono::seconds(5)) return;
  said = true;
  std::fprintf(stderr,
               "spillway simulator: the program reads the same value of a device again and again: values are "
               "not computed, so a wait for one may never end; --values compute computes them\n");
}

void report_host_reads() {
  using Clock = std::chrono::steady_clock;
  static std::optional<Clock::time_point> last;
  const Clock::time_point now = Clock::now();
  if (last && now - *last < std::chrono::seconds(1)) return;
  last = now;
  write_report("host read");
}

void tell_observer(const HostRead& read) {
  const Observer* told = observer;
  if (told != nullptr) told->call(told->argument, read.source, read.bytes);
}

void fill_with_chance(void* to, uint64_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  if (bytes <= 8) {
    const uint64_t most = bytes < 2 ? 1 : 16;
    const uint64_t value = next_number() % (most + 1);
    std::memcpy(out, &value, bytes);
    return;
  }
  for (uint64_t i = 0; i + 8 <= bytes && i < kMostBytes; i += 8) out[i] = next_number() & 1;
}

}  // namespace spillway::simulator
