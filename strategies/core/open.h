// The core's C table in the library that was loaded, for those that call the one core of the process through
// it.
//
// Thread-safety: any thread. Ownership: none. Errors: values. Needs no C++ runtime.
#pragma once
#include <dlfcn.h>

#include "strategies/core/core.h"

namespace spillway {

// A function of a loaded library; false, and null, where it has none of that name.
template <class Function>
bool find_in(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  return *out != nullptr;
}

// Null: the library is of another version than the caller.
inline const spillway_core_table* core_in(void* library) {
  decltype(&spillway_core) get = nullptr;
  const spillway_core_table* table = find_in(library, "spillway_core", &get) ? get() : nullptr;
  const bool fits =
      table != nullptr && table->version == SPILLWAY_CORE_VERSION && table->size >= sizeof *table;
  return fits ? table : nullptr;
}

}  // namespace spillway
