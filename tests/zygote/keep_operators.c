// Preloaded into server.py: the static objects of libtorch_cpu.so stay when a program ends. Its operators are
// taken out of their tables one by one there, which writes to what the programs share with the server, and
// takes longer than most of them.
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
  // Of this thread: functions have static objects too.
  static _Thread_local Register next;
  static _Thread_local const void* last;
  static _Thread_local int is_kept;
  if (next == NULL) next = find_next();
  if (library != last || last == NULL) {
    last = library;
    is_kept = has_operators(library);
  }
  return is_kept ? 0 : next(function, object, library);
}
