// libcudart.so.12 for what is as in CUDA 13: each function jumps to that of libcudart.so.13, so that a
// process has one runtime, whichever of the two its libraries ask for. A jump leaves no frame: the caller
// stays the caller. The definitions are weak; those of changed.cpp take their places.
#include "simulator/runtime/cuda_12/forward.h"

#include <dlfcn.h>

#include <cstdio>

// In assembly, because a function of any arguments is passed on.
#define SPILLWAY_RUNTIME_FUNCTION(name)                                             \
  extern "C" {                                                                      \
  __attribute__((visibility("hidden"))) void* spillway_newer_##name = nullptr;      \
  }                                                                                 \
  __asm__(".pushsection .text\n.weak " #name "\n.type " #name ", @function\n" #name \
          ":\n  jmp *spillway_newer_" #name "(%rip)\n.size " #name ", . - " #name "\n.popsection");
#include "simulator/runtime/cuda_12/others.inc"
#include "simulator/runtime/kernels/runtime_functions.inc"
#undef SPILLWAY_RUNTIME_FUNCTION

namespace spillway::runtime_12 {
namespace {

struct Forward {
  const char* name;
  void** target;
};
#define SPILLWAY_RUNTIME_FUNCTION(name) {#name, &spillway_newer_##name},
constexpr Forward kForwards[] = {
#include "simulator/runtime/cuda_12/others.inc"
#include "simulator/runtime/kernels/runtime_functions.inc"
};
#undef SPILLWAY_RUNTIME_FUNCTION

void* newer_library() {
  static void* const library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_LOCAL);
  return library;
}

// Before the constructors of the libraries that are linked against this one: they register kernels.
__attribute__((constructor)) void find_all() {
  if (newer_library() == nullptr)
    std::fprintf(stderr, "spillway simulator: libcudart.so.12 finds no libcudart.so.13: %s\n", dlerror());
  for (const Forward& forward : kForwards) *forward.target = newer(forward.name);
}

}  // namespace

void* newer(const char* name) {
  return newer_library() == nullptr ? nullptr : dlsym(newer_library(), name);
}

}  // namespace spillway::runtime_12
