#include "interpose/gate/rdma.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interpose/gate/gate.h"
#include "interpose/gate/pins.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {
namespace {

// The beginning of verbs.h's ibv_mr, which is part of its binary interface.
struct Region {
  void* context;
  void* domain;
  void* address;
  size_t bytes;
};

// The library may have been loaded where only its user sees it.
template <class Function>
Function real_verb(const char* name) {
  void* library = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);
  void* const found = real_dlsym()(library == nullptr ? RTLD_NEXT : library, name);
  if (library != nullptr) dlclose(library);
  return reinterpret_cast<Function>(found);
}

// Pinned before the device knows it, and not while the pages are being exchanged.
template <class Verb, class... Arguments>
Region* register_pinned(const char* name, void* domain, void* address, size_t bytes, Arguments... more) {
  const auto verb = real_verb<Verb>(name);
  if (verb == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  const Passage passage;
  const auto at = reinterpret_cast<uint64_t>(address);
  const bool pinned = pin_block(at, bytes);
  Region* const region = verb(domain, address, bytes, more...);
  const int code = errno;
  if (pinned) pin_belongs_to(region, at);
  errno = code;
  return region;
}

}  // namespace
}  // namespace spillway::interpose

using spillway::interpose::Region;

extern "C" {

__attribute__((visibility("default"))) Region* ibv_reg_mr(void* domain, void* address, size_t bytes,
                                                          int access) {
  using Verb = Region* (*)(void*, void*, size_t, int);
  return spillway::interpose::register_pinned<Verb>("ibv_reg_mr", domain, address, bytes, access);
}

__attribute__((visibility("default"))) Region* ibv_reg_mr_iova(void* domain, void* address, size_t bytes,
                                                               uint64_t remote, int access) {
  using Verb = Region* (*)(void*, void*, size_t, uint64_t, int);
  return spillway::interpose::register_pinned<Verb>("ibv_reg_mr_iova", domain, address, bytes, remote,
                                                    access);
}

__attribute__((visibility("default"))) Region* ibv_reg_mr_iova2(void* domain, void* address, size_t bytes,
                                                                uint64_t remote, unsigned access) {
  using Verb = Region* (*)(void*, void*, size_t, uint64_t, unsigned);
  return spillway::interpose::register_pinned<Verb>("ibv_reg_mr_iova2", domain, address, bytes, remote,
                                                    access);
}

__attribute__((visibility("default"))) int ibv_dereg_mr(Region* region) {
  const auto verb = spillway::interpose::real_verb<int (*)(Region*)>("ibv_dereg_mr");
  if (verb == nullptr) return ENOSYS;
  // Another registration may get the same pointer as soon as the verb has returned.
  const uint64_t address = spillway::interpose::take_pin_of(region);
  const int code = verb(region);
  if (address != 0 && code == 0) spillway::interpose::unpin_block(address);
  if (address != 0 && code != 0) spillway::interpose::pin_belongs_to(region, address);
  return code;
}
}

namespace spillway::interpose {

// Version 1.0 of the interface, of 2006, has other structures.
void* rdma_hook_for(const char* name, const char* version) {
  if (!begins_with(name, "ibv_") || (version != nullptr && std::strcmp(version, "IBVERBS_1.0") == 0))
    return nullptr;
  const struct {
    const char* name;
    void* hook;
  } hooks[] = {{"ibv_reg_mr", reinterpret_cast<void*>(&ibv_reg_mr)},
               {"ibv_reg_mr_iova", reinterpret_cast<void*>(&ibv_reg_mr_iova)},
               {"ibv_reg_mr_iova2", reinterpret_cast<void*>(&ibv_reg_mr_iova2)},
               {"ibv_dereg_mr", reinterpret_cast<void*>(&ibv_dereg_mr)}};
  for (const auto& known : hooks)
    if (std::strcmp(known.name, name) == 0) return known.hook;
  return nullptr;
}

}  // namespace spillway::interpose
