#include "strategies/framework/framework.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/libtorch_version.h"
#include "base/this_library.h"
#include "strategies/framework/deadline_worker.h"
#include "strategies/processes/primary_context_guard.h"

namespace spillway {
namespace {

using Function = int (*)();
using MemoryFunction = int (*)(int, uint64_t*, uint64_t*, uint64_t*);
std::atomic<Function> empty{nullptr};
std::atomic<MemoryFunction> memory{nullptr};
using StateFunction = int (*)(int, FrameworkState*);
std::atomic<StateFunction> state{nullptr};
using RetriesFunction = int (*)(int, uint64_t*, uint64_t*);
std::atomic<RetriesFunction> retries{nullptr};
std::atomic<Function> uses_nccl2{nullptr};

struct Framework;
DeadlineWorker& worker() {
  return DeadlineWorker::of<Framework>();
}

bool libtorch_is_loaded() {
  void* library = dlopen("libc10_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

}  // namespace

bool prepare_framework() {
  if (empty.load() != nullptr) return true;
  const DriverSpan span;
  if (!span.begun() || !libtorch_is_loaded()) return false;
  void* plugin = open_library(path_beside(&prepare_framework, "libspillway_plugin.so"));
  if (plugin == nullptr) return false;
  const auto ready = reinterpret_cast<Function>(dlsym(plugin, "spillway_framework_ready"));
  const auto release = reinterpret_cast<Function>(dlsym(plugin, "spillway_framework_empty_cache"));
  if (ready == nullptr || release == nullptr || ready() != 0) return false;
  memory.store(reinterpret_cast<MemoryFunction>(dlsym(plugin, "spillway_framework_memory")));
  retries.store(reinterpret_cast<RetriesFunction>(dlsym(plugin, "spillway_framework_retries")));
  state.store(reinterpret_cast<StateFunction>(dlsym(plugin, "spillway_framework_state")));
  uses_nccl2.store(reinterpret_cast<Function>(dlsym(plugin, "spillway_framework_uses_nccl2")));
  empty.store(release);
  return true;
}

std::string framework_version() {
  const LibTorchVersion version = libtorch_version();
  return version.known() ? version.text() + "." + std::to_string(version.patch) : "";
}

bool prepare_framework_within(std::chrono::milliseconds most) {
  if (framework_is_prepared()) return true;
  worker().run([] { prepare_framework(); }, std::chrono::steady_clock::now() + most);
  return framework_is_prepared();
}

bool framework_uses_nccl2() {
  const Function ask = uses_nccl2.load();
  return ask != nullptr && ask() != 0;
}

bool framework_is_prepared() {
  return empty.load() != nullptr;
}

void stay_out_of_captures(const driver::Table& table) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (table.cuThreadExchangeStreamCaptureMode != nullptr) table.cuThreadExchangeStreamCaptureMode(&mode);
}

bool empty_framework_cache() {
  const Function release = empty.load();
  return release != nullptr && release() == 0;
}

// LibTorch's lock is recursive.
std::optional<FrameworkMemory> framework_memory_inside(int device) {
  const MemoryFunction ask = memory.load();
  FrameworkMemory held;
  const bool told =
      ask != nullptr && ask(device, &held.held_bytes, &held.used_bytes, &held.releasable_bytes) == 0;
  return told ? std::optional(held) : std::nullopt;
}

std::optional<FrameworkState> framework_state_inside(int device) {
  const StateFunction ask = state.load();
  FrameworkState told{};
  return ask != nullptr && ask(device, &told) == 0 ? std::optional(told) : std::nullopt;
}

std::optional<FrameworkRetries> framework_retries_inside(int device) {
  const RetriesFunction ask = retries.load();
  FrameworkRetries told;
  return ask != nullptr && ask(device, &told.retries, &told.got_bytes) == 0 ? std::optional(told)
                                                                            : std::nullopt;
}

std::optional<FrameworkMemory> framework_memory(int device, std::chrono::milliseconds most) {
  struct Asked {
    FrameworkMemory memory;
    bool told = false;
  };
  const MemoryFunction ask = memory.load();
  if (ask == nullptr) return std::nullopt;
  const auto asked = std::make_shared<Asked>();  // the worker may come too late
  const bool done = worker().run(
      [asked, ask, device] {
        FrameworkMemory& memory = asked->memory;
        asked->told = ask(device, &memory.held_bytes, &memory.used_bytes, &memory.releasable_bytes) == 0;
      },
      std::chrono::steady_clock::now() + most);
  return done && asked->told ? std::optional(asked->memory) : std::nullopt;
}

}  // namespace spillway
