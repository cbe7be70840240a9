#include "interpose/replace.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "interpose/core.h"
#include "interpose/gate/gate.h"
#include "interpose/hooks/captures.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/hooks/marks.h"
#include "interpose/own_libraries.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

enum class State { kWaiting, kWorking, kOver };
std::atomic<State> state{State::kWaiting};

// LibTorch's variable, once its initialiser has run. A C++ program may hold the variable itself, by a copy
// relocation: the global scope is asked first.
bool libtorch_is_ready() {
  void* library = dlopen("libc10_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return false;
  constexpr const char* kVariable = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
  void* variable = real_dlsym()(RTLD_DEFAULT, kVariable);
  if (variable == nullptr) variable = real_dlsym()(library, kVariable);
  dlclose(library);
  return variable != nullptr && *static_cast<void**>(variable) != nullptr;
}

void refused(const char* why) {
  say("--mode replace: PyTorch's own allocator stays: ", why);
  ProcessSummary& slot = summary();
  std::snprintf(slot.note, sizeof slot.note, "%s", why);
  slot.replacement.store(Replacement::kRefused);
}

void begin_marks() {
  if (const spillway_core_table* table = core()) mark_progress.store(table->mark_progress);
}

void install() {
  void* library = open_beside("libspillway_plugin.so");
  if (library == nullptr) return refused(dlerror());
  const auto find = real_dlsym();
  const auto install = reinterpret_cast<int (*)()>(find(library, "spillway_install"));
  const auto why = reinterpret_cast<const char* (*)()>(find(library, "spillway_install_error"));
  if (install == nullptr || why == nullptr) return refused("libspillway_plugin.so is of another version");
  if (install() != 0) return refused(why());
  if (const spillway_core_table* table = core(); table != nullptr && table->start() == SPILLWAY_OK) {
    constexpr spillway_gate kGate{sizeof kGate,       close_gate,        open_gate,
                                  captures_under_way, Counter::launches, begin_marks};
    table->set_gate(&kGate);
    note_trace();
  }
  summary().replacement.store(Replacement::kDone);
}

}  // namespace

void replace_if_due() {
  if (mode() != Mode::kReplace || state.load(std::memory_order_relaxed) != State::kWaiting) return;
  if (!libtorch_is_ready()) return;
  State waiting = State::kWaiting;
  if (!state.compare_exchange_strong(waiting, State::kWorking)) return;
  install();
  state.store(State::kOver);
}

}  // namespace spillway::interpose
