/* Looks symbols up as KvikIO and GLib do: a message of dlerror afterwards means that it failed, whatever was
 * found. One of them is named like a function of the driver, and is another library's. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) int cuFileOpen(void) {
  return 7;
}

static int failures = 0;

static void* find(void* handle, const char* name) {
  dlerror();
  void* found = dlsym(handle, name);
  const char* error = dlerror();
  if (found == NULL || error != NULL) {
    fprintf(stderr, "%s: %s\n", name, error != NULL ? error : "not found");
    ++failures;
  }
  return found;
}

static int has_driver(void) {
  char line[4096];
  int has = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    has = has || strstr(line, "libcuda.so") != NULL;
  if (maps != NULL) fclose(maps);
  return has;
}

int main(void) {
  void* self = dlopen(NULL, RTLD_NOW);
  const int had_driver = has_driver();
  if (find(self, "cuFileOpen") != (void*)cuFileOpen) ++failures;
  if (has_driver() != had_driver) {
    fprintf(stderr, "the look-up loaded the driver\n");
    ++failures;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  find(driver, "cuInit");
  find(driver, "cuMemAlloc_v2");
  if (find(self, "cuFileOpen") != (void*)cuFileOpen) ++failures;
  if (dlsym(driver, "cuNoSuchFunction") != NULL || dlerror() == NULL) ++failures;
  return failures != 0;
}
