// spillway_install: finds the shim for the LibTorch in the process. A shim of another version is not even
// loaded, since its virtual tables and symbols are that version's.
#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/this_library.h"
#include "libtorch/plugin/nccl_registration.h"
#include "libtorch/plugin/shim.h"
#include "spillway/libtorch/plugin.h"

namespace spillway::libtorch {
namespace {

// The versions of LibTorch that `folder` has a shim for.
std::vector<LibTorchVersion> versions_in(const std::string& folder) {
  std::vector<LibTorchVersion> versions;
  DIR* entries = opendir(folder.empty() ? "." : folder.c_str());
  if (entries == nullptr) return versions;
  while (const dirent* entry = readdir(entries)) {
    unsigned major = 0;
    unsigned minor = 0;
    int length = 0;
    if (std::sscanf(entry->d_name, "libspillway_torch_%3u_%3u.so%n", &major, &minor, &length) == 2 &&
        length != 0 && entry->d_name[length] == '\0')
      versions.push_back({major, minor});
  }
  closedir(entries);
  std::ranges::sort(versions, {}, [](const LibTorchVersion& it) { return std::pair(it.major, it.minor); });
  return versions;
}

std::string list(const std::vector<LibTorchVersion>& versions) {
  std::string text;
  for (const LibTorchVersion& version : versions) text += (text.empty() ? "" : ", ") + version.text();
  return text.empty() ? "none" : text;
}

// The path of the shim for the LibTorch in the process, or "" and why there is none.
std::string find_shim(std::string* why_not) {
  const LibTorchVersion process = libtorch_version();
  if (!process.known()) {
    *why_not = "LibTorch is not loaded (import torch first), or does not say its version";
    return "";
  }
  const std::string folder = path_beside(&spillway_install, "").text;
  const std::vector<LibTorchVersion> built = versions_in(folder);
  const bool found = std::ranges::any_of(built, [&](const LibTorchVersion& it) {
    return it.major == process.major && it.minor == process.minor;
  });
  if (!found) {
    *why_not =
        "the process runs LibTorch " + process.text() + " and this Spillway is built for LibTorch " +
        list(built) +
        ": install the Spillway built for it, or call spillway.install_plugin(), which works with every "
        "version through torch.cuda.memory.CUDAPluggableAllocator but without PyTorch's statistics, "
        "snapshots and memory pools";
    return "";
  }
  return folder + shim_name(process);
}

std::string install() {
  std::string why_not;
  const std::string shim = find_shim(&why_not);
  return shim.empty() ? why_not : install_shim(shim);
}

Mutex<LockOrder::kPluginInstall> mutex;
bool installed SPILLWAY_GUARDED_BY(mutex) = false;
std::string error SPILLWAY_GUARDED_BY(mutex);
std::atomic<int (*)()> empty_native_cache{nullptr};
using MemoryFunction = int (*)(int, uint64_t*, uint64_t*, uint64_t*);
std::atomic<MemoryFunction> native_memory{nullptr};
using StateFunction = int (*)(int, SpillwayFrameworkState*);
std::atomic<StateFunction> native_state{nullptr};
using RetriesFunction = int (*)(int, uint64_t*, uint64_t*);
std::atomic<RetriesFunction> native_retries{nullptr};
std::atomic<bool> uses_nccl2{false};

// As torch.distributed chooses, which reads the variable once.
bool nccl_is_nccl2() {
  const LibTorchVersion process = libtorch_version();
  const char* text = std::getenv("TORCH_DIST_USE_NCCL2");
  const std::string_view chosen = text == nullptr ? "" : text;
  if (process.major != 2 || process.minor < 14) return false;
  return process.minor == 14 ? chosen == "1" : chosen != "0";
}

}  // namespace
}  // namespace spillway::libtorch

extern "C" SPILLWAY_API int spillway_install(void) {
  using namespace spillway::libtorch;
  const spillway::Locked lock(mutex);
  if (installed) return 0;
  error = install();
  installed = error.empty();
  if (installed) leave_out_graph_registration();
  return installed ? 0 : 1;
}

extern "C" SPILLWAY_API const char* spillway_install_error(void) {
  const spillway::Locked lock(spillway::libtorch::mutex);
  return spillway::libtorch::error.c_str();
}

extern "C" SPILLWAY_API int spillway_framework_ready(void) {
  using namespace spillway::libtorch;
  if (empty_native_cache.load() != nullptr) return 0;
  // Who holds the lock may need the loader's, which this thread may hold: not now, then.
  if (!mutex.try_lock()) return 1;
  const spillway::Locked lock(mutex, spillway::kAdopt);
  std::string why_not;
  const std::string shim = find_shim(&why_not);
  void* library = shim.empty() ? nullptr : open_shim(shim);
  if (library == nullptr) return 1;
  native_memory.store(reinterpret_cast<MemoryFunction>(dlsym(library, "spillway_torch_native_memory")));
  native_state.store(reinterpret_cast<StateFunction>(dlsym(library, "spillway_torch_native_state")));
  native_retries.store(reinterpret_cast<RetriesFunction>(dlsym(library, "spillway_torch_native_retries")));
  uses_nccl2.store(nccl_is_nccl2());
  empty_native_cache.store(reinterpret_cast<int (*)()>(dlsym(library, "spillway_torch_empty_native_cache")));
  return empty_native_cache.load() == nullptr ? 1 : 0;
}

extern "C" SPILLWAY_API int spillway_framework_empty_cache(void) {
  const auto empty = spillway::libtorch::empty_native_cache.load();
  return empty == nullptr ? 1 : empty();
}

extern "C" SPILLWAY_API int spillway_framework_uses_nccl2(void) {
  return spillway::libtorch::uses_nccl2.load() ? 1 : 0;
}

extern "C" SPILLWAY_API int spillway_framework_state(int device, SpillwayFrameworkState* state) {
  const auto ask = spillway::libtorch::native_state.load();
  return ask == nullptr ? 1 : ask(device, state);
}

extern "C" SPILLWAY_API int spillway_framework_retries(int device, uint64_t* retries, uint64_t* got_bytes) {
  const auto ask = spillway::libtorch::native_retries.load();
  return ask == nullptr ? 1 : ask(device, retries, got_bytes);
}

extern "C" SPILLWAY_API int spillway_framework_memory(int device, uint64_t* held, uint64_t* in_use,
                                                      uint64_t* releasable) {
  const auto ask = spillway::libtorch::native_memory.load();
  return ask == nullptr ? 1 : ask(device, held, in_use, releasable);
}
