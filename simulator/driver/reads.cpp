#include "simulator/driver/reads.h"

#include <atomic>
#include <cstring>

#include "simulator/driver/call.h"

namespace spillway::simulator {
namespace {

struct Observer {
  SpillwayReadObserver call = nullptr;
  void* argument = nullptr;
};
// Replaced ones are left: another thread may still call them.
std::atomic<const Observer*> observer{nullptr};

// Reads of more are bulk data that hardly decide anything, and their pages would fill the host.
constexpr uint64_t kMostBytes = 1 << 20;

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
  observer = call == nullptr ? nullptr : new Observer{call, argument};
}

void tell_host_read(CUdeviceptr source, uint64_t bytes) {
  const Observer* told = observer;
  if (told == nullptr) return;
  Call* call = Call::current();
  if (call != nullptr) call->unlock();
  told->call(told->argument, source, bytes);
  if (call != nullptr) call->lock();
}

void fill_with_chance(void* to, uint64_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  if (bytes <= 8) {
    const uint64_t most = bytes < 4 ? 1 : 16;
    const uint64_t value = next_number() % (most + 1);
    std::memcpy(out, &value, bytes);
    return;
  }
  for (uint64_t i = 0; i + 8 <= bytes && i < kMostBytes; i += 8) out[i] = next_number() & 1;
}

}  // namespace spillway::simulator
