#include "interpose/core.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "interpose/account/native_pools.h"
#include "interpose/own_libraries.h"
#include "interpose/process.h"
#include "strategies/core/open.h"

namespace spillway::interpose {
namespace {

// Nobody waits for ever for the thread that loads: it may need the loader's lock, which the one that waits
// may hold.
enum class State { kNone, kLoading, kOver };
constexpr int kLooks = 200;
constexpr useconds_t kBetweenLooksUs = 10'000;
std::atomic<State> state{State::kNone};
const spillway_core_table* table = nullptr;
const char* (*trace_path)() = nullptr;
const char* (*last_error)() = nullptr;
decltype(&spillway_pin) pin_in_core = nullptr;
decltype(&spillway_unpin) unpin_in_core = nullptr;

void load() {
  void* library = open_beside("libspillway.so");
  if (library == nullptr) {
    say("the core cannot be loaded, and nothing is rescued: ", dlerror());
    return;
  }
  const spillway_core_table* found = core_in(library);
  if (found == nullptr) {
    say("libspillway.so is of another version than this preloaded library, and nothing is rescued: install "
        "matching libraries");
    return;
  }
  find_in(library, "spillway_trace_path", &trace_path);
  find_in(library, "spillway_last_error", &last_error);
  find_in(library, "spillway_pin", &pin_in_core);
  find_in(library, "spillway_unpin", &unpin_in_core);
  found->count_incidents(&summary().incidents);
  static constexpr spillway_pools kPools{sizeof kPools, pools_used, visit_pools};
  found->set_pools(&kPools);
  table = found;
}

}  // namespace

const spillway_core_table* core() {
  State none = State::kNone;
  if (state.compare_exchange_strong(none, State::kLoading)) {
    load();
    state.store(State::kOver, std::memory_order_release);
  }
  for (int look = 0; state.load(std::memory_order_acquire) != State::kOver; ++look) {
    if (look == kLooks) return nullptr;
    ::usleep(kBetweenLooksUs);
  }
  return table;
}

const char* core_error() {
  return last_error == nullptr ? "" : last_error();
}

bool pin(uint64_t address, uint64_t bytes) {
  const bool loaded = state.load(std::memory_order_acquire) == State::kOver && pin_in_core != nullptr;
  return loaded && pin_in_core(reinterpret_cast<void*>(address), bytes) == SPILLWAY_OK;
}

void unpin(uint64_t address) {
  if (unpin_in_core != nullptr) unpin_in_core(reinterpret_cast<void*>(address));
}

bool is_block(uint64_t address) {
  if (state.load(std::memory_order_acquire) != State::kOver || table == nullptr) return false;
  return table->find_block(reinterpret_cast<void*>(address), nullptr) == SPILLWAY_OK;
}

static void note_trace_in(ProcessSummary& slot) {
  if (trace_path == nullptr || slot.trace[0] != '\0') return;
  const char* path = trace_path();
  if (strlen(path) < sizeof slot.trace) std::snprintf(slot.trace, sizeof slot.trace, "%s", path);
}

void note_trace() {
  note_trace_in(summary());
}

void count_in(ProcessSummary& slot) {
  if (state.load(std::memory_order_acquire) != State::kOver || table == nullptr) return;
  table->count_incidents(&slot.incidents);
  note_trace_in(slot);
}

}  // namespace spillway::interpose
