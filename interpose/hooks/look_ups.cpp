// dlsym and dlvsym. What they find is asked of the C library first; the driver's functions, and those that
// register memory for RDMA, are then exchanged for their hooks. Every other look-up is a jump to the C
// library's function in the caller's own frame, which is how RTLD_NEXT and RTLD_DEFAULT know who asks.
#include <dlfcn.h>

#include "interpose/gate/rdma.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/hooks/functions.h"
#include "interpose/hooks/inside.h"
#include "interpose/hooks/unknown_symbols.h"
#include "interpose/replace.h"

namespace spillway::interpose {
namespace {

bool is_ours_to_answer(void* handle, const char* name) {
  if (name == nullptr || handle == RTLD_NEXT || handle == RTLD_DEFAULT) return false;
  if (begins_with(name, "ibv_")) return true;
  return is_driver_name(name) && !loading_real() && !Inside::now();
}

void* hook_or(void* found, const char* name, const char* version) {
  if (found == nullptr) return nullptr;
  if (begins_with(name, "ibv_")) {
    void* const hook = rdma_hook_for(name, version);
    return hook != nullptr ? hook : found;
  }
  if (!is_driver_function(name) && !may_be_drivers(found)) return found;
  if (void* const hook = hook_for(found, name)) return hook;
  return is_unlisted(found, name) ? stub_for(found, name, 0) : found;
}

}  // namespace
}  // namespace spillway::interpose

// The answer to a look-up, or null: then the C library's own is asked in the caller's name, and reports the
// error if there is one.
extern "C" {
[[gnu::visibility("hidden")]] spillway::interpose::LookUp spillway_next_dlsym = nullptr;
[[gnu::visibility("hidden")]] spillway::interpose::VersionedLookUp spillway_next_dlvsym = nullptr;

[[gnu::visibility("hidden"), gnu::used]] void* spillway_answer_dlsym(void* handle, const char* name) {
  using namespace spillway::interpose;
  if (spillway_next_dlsym == nullptr) spillway_next_dlsym = real_dlsym();
  if (name != nullptr && begins_with(name, "PyInit_")) replace_if_due();
  if (!is_ours_to_answer(handle, name)) return nullptr;
  return hook_or(spillway_next_dlsym(handle, name), name, nullptr);
}

[[gnu::visibility("hidden"), gnu::used]] void* spillway_answer_dlvsym(void* handle, const char* name,
                                                                      const char* version) {
  using namespace spillway::interpose;
  if (spillway_next_dlvsym == nullptr) spillway_next_dlvsym = real_dlvsym();
  if (!is_ours_to_answer(handle, name)) return nullptr;
  return hook_or(spillway_next_dlvsym(handle, name, version), name, version);
}

// Spillway's own look-ups of the driver: never a hook (driver/table.cpp).
__attribute__((visibility("default"))) void* spillway_unhooked_dlsym(void* handle, const char* name) {
  return spillway::interpose::real_dlsym()(handle, name);
}
}
