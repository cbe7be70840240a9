#include "libtorch/allocator/core.h"

#include <dlfcn.h>

namespace spillway::libtorch {
namespace {

Core loaded;

std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_core), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string load_core() {
  const std::string path = folder_of_this_library() + "libspillway.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return std::string("its core can not be loaded: ") + dlerror();
  decltype(&spillway_core) get = nullptr;
  Core found;
  if (!find(library, "spillway_core", get) || !find(library, "spillway_query", found.query) ||
      !find(library, "spillway_limit", found.limit) ||
      !find(library, "spillway_reset_peaks", found.reset_peaks) ||
      !find(library, "spillway_last_error", found.last_error)) {
    return path + " lacks a function of Spillway's core: install matching libraries";
  }
  found.table = get();
  if (found.table == nullptr || found.table->version != SPILLWAY_CORE_VERSION ||
      found.table->size < sizeof(spillway_core_table)) {
    return path + " has another version of Spillway's core than " + std::to_string(SPILLWAY_CORE_VERSION) +
           ": install matching libraries";
  }
  loaded = found;
  return "";
}

const Core& core() noexcept {
  return loaded;
}

spillway_memory memory_of(int device) noexcept {
  spillway_memory memory{};
  memory.size = sizeof memory;
  if (loaded.query(device, &memory) != SPILLWAY_OK) memory = {};
  return memory;
}

spillway_usage usage_of(int device) noexcept {
  spillway_usage usage{};
  loaded.table->usage(device, &usage);
  return usage;
}

}  // namespace spillway::libtorch
