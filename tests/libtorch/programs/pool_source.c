// The memory of a pool as a program would get it from another library: cudaMalloc, counted and refusable.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static size_t asked[64], count, freed, most = (size_t)-1;

static void* runtime(const char* name) {
  void* library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  return library == NULL ? NULL : dlsym(library, name);
}

void* source_malloc(size_t bytes, int device, void* stream) {
  (void)device;
  (void)stream;
  if (bytes > most) return NULL;
  void* address = NULL;
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))runtime("cudaMalloc");
  if (allocate == NULL || allocate(&address, bytes) != 0) return NULL;
  if (count < 64) asked[count] = bytes;
  ++count;
  return address;
}

void source_free(void* address, size_t bytes, int device, void* stream) {
  (void)bytes;
  (void)device;
  (void)stream;
  int (*release)(void*) = (int (*)(void*))runtime("cudaFree");
  if (release != NULL && release(address) == 0) ++freed;
}

size_t source_asked(size_t index) {
  return index < count ? asked[index] : 0;
}
size_t source_freed(void) {
  return freed;
}
void source_limit(size_t bytes) {
  most = bytes;
}
