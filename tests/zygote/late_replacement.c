// Preloaded into server.py: who asks whether LibTorch's CUDA part is loaded is told that it is not, until
// `spillway_libtorch_is_hidden` is 0. `--mode replace` replaces PyTorch's allocator as soon as it is loaded,
// which would be in the server and for all of its programs; so each of them does it, as it begins.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void* (*Open)(const char*, int);

__attribute__((visibility("default"))) int spillway_libtorch_is_hidden = 1;

static Open find_real_dlopen(void) {
  const Open found = (Open)dlsym(RTLD_NEXT, "dlopen");
  if (found == NULL) abort();
  return found;
}

// The loader looks in the folders that the caller names, and so this has to end in a jump.
__attribute__((visibility("default"))) void* dlopen(const char* name, int flags) {
  static _Thread_local Open next;
  if (next == NULL) next = find_real_dlopen();
  if (spillway_libtorch_is_hidden && (flags & RTLD_NOLOAD) != 0 && name != NULL &&
      strcmp(name, "libc10_cuda.so") == 0)
    return NULL;
  return next(name, flags);
}
