// The real functions behind the hooks: the driver's, and the loader's look-ups.
//
// Thread-safety: any thread. Errors: `real()` has null fields for what the driver lacks, and only null fields
// where there is no driver.
#pragma once
#include <atomic>

#include "driver/table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

using LookUp = void* (*)(void* handle, const char* name);
using VersionedLookUp = void* (*)(void* handle, const char* name, const char* version);
LookUp real_dlsym();
VersionedLookUp real_dlvsym();

inline std::atomic<const driver::Table*> loaded_table{nullptr};
[[gnu::cold]] const driver::Table& load_table();

// The driver's table. The first call loads libcuda.so.1 (or $SPILLWAY_DRIVER), which is already there when a
// program calls it.
inline const driver::Table& real() {
  const driver::Table* at = loaded_table.load(std::memory_order_acquire);
  return at != nullptr ? *at : load_table();
}
// Whether a thread is inside the first call, where the driver's own look-ups are none of ours.
bool loading_real();

// Whether a name is like those of the driver's functions, and whether it is one in the list, in any version.
bool is_driver_name(const char* name);
bool is_driver_function(const char* name);

// Whether it may be the driver's, by the name of the file that it lies in: the driver is not loaded to tell.
bool may_be_drivers(const void* found);
// Whether it is the driver's, by a name that is not in the list.
bool is_unlisted(const void* found, const char* name);

// The hook that stands for what a look-up of `name` gave, or null: the driver's export of that name, or one
// known by its address under another. `name` may be null.
void* hook_for(const void* found, const char* name);
// As for cuGetProcAddress: by address, else by what the name means in that version of CUDA and in the driver.
// Null for a version newer than the headers, whose functions may take other arguments, and where the driver
// exports nothing under that name.
void* hook_for(const void* found, const char* base, int cuda_version, bool per_thread);

}  // namespace spillway::interpose
