// Preloaded into server.py: LibTorch's operators are not taken out of their tables one by one when a program
// ends. That writes to what the programs share with the server, and takes longer than most of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Destructor)(void*);
typedef int (*Register)(Destructor, void*, void*);

static Register find_next(void) {
  const Register found = (Register)dlsym(RTLD_NEXT, "__cxa_atexit");
  if (found == NULL) abort();
  return found;
}

static int has_operators(const void* library) {
  Dl_info info;
  return library != NULL && dladdr(library, &info) != 0 && info.dli_fname != NULL &&
         strstr(info.dli_fname, "/libtorch_cpu.so") != NULL;
}

// Called by every constructor of a static object, for its destructor.
__attribute__((visibility("default"))) int __cxa_atexit(Destructor function, void* object, void* library) {
  static Register next;
  static const void* last;
  static int is_kept;
  if (next == NULL) next = find_next();
  if (library != last || last == NULL) {
    last = library;
    is_kept = has_operators(library);
  }
  return is_kept ? 0 : next(function, object, library);
}
