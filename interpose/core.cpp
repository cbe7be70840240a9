#include "interpose/core.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstring>

#include "interpose/libraries.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

pthread_once_t once = PTHREAD_ONCE_INIT;
const spillway_core_table* table = nullptr;
const char* (*trace_path)() = nullptr;

void load() {
  void* library = open_beside("libspillway.so");
  if (library == nullptr) {
    say("the core can not be loaded, and nothing is rescued: ", dlerror());
    return;
  }
  const auto get = reinterpret_cast<decltype(&spillway_core)>(dlsym(library, "spillway_core"));
  const spillway_core_table* found = get == nullptr ? nullptr : get();
  if (found == nullptr || found->version != SPILLWAY_CORE_VERSION || found->size < sizeof *found) {
    say("libspillway.so is of another version than this preloaded library, and nothing is rescued: install "
        "matching libraries");
    return;
  }
  trace_path = reinterpret_cast<decltype(trace_path)>(dlsym(library, "spillway_trace_path"));
  found->count_incidents(&summary().incidents);
  table = found;
}

}  // namespace

const spillway_core_table* core() {
  pthread_once(&once, load);
  return table;
}

void note_trace() {
  ProcessSummary& slot = summary();
  if (trace_path == nullptr || slot.trace[0] != '\0') return;
  const char* path = trace_path();
  if (strlen(path) < sizeof slot.trace) std::snprintf(slot.trace, sizeof slot.trace, "%s", path);
}

}  // namespace spillway::interpose
