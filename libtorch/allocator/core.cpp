#include "libtorch/allocator/core.h"

#include "base/this_library.h"
#include "strategies/core/open.h"

namespace spillway::libtorch {
namespace {

Core loaded;

}  // namespace

std::string load_core() {
  const PathText file = path_beside(&load_core, "libspillway.so");
  const std::string path = file.text;
  void* library = open_library(file);
  if (library == nullptr) return std::string("its core cannot be loaded: ") + dlerror();
  Core found;
  if (!find_in(library, "spillway_query", &found.query) ||
      !find_in(library, "spillway_limit", &found.limit) ||
      !find_in(library, "spillway_reset_peaks", &found.reset_peaks) ||
      !find_in(library, "spillway_last_error", &found.last_error) ||
      !find_in(library, "spillway_set_lasting_streams", &found.set_lasting_streams)) {
    return path + " lacks a function of Spillway's core: install matching libraries";
  }
  found.table = core_in(library);
  if (found.table == nullptr) {
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
