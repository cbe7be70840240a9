/* A plain C program that links Spillway: asks what it holds of the card, asks the driver for more than there
 * is, and says how many cores of Spillway's the process has. */
#include <dlfcn.h>
#include <inttypes.h>
#include <spillway/spillway.h>
#include <stdio.h>
#include <string.h>

/* Files of this name in the process. */
static int loaded_cores(void) {
  unsigned long seen[8];
  int count = 0;
  char line[4352];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long inode = 0;
    if (strstr(line, "/libspillway.so") == NULL || sscanf(line, "%*s %*s %*s %*s %lu", &inode) != 1) continue;
    int at = 0;
    while (at < count && seen[at] != inode) ++at;
    if (at == count && count < 8) seen[count++] = inode;
  }
  if (maps != NULL) fclose(maps);
  return count;
}

/* What cuMemAlloc returns for `bytes`, as any library would ask. */
static int ask_driver(size_t bytes) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return -1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*enter)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*allocate)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  void* context = NULL;
  unsigned long long address = 0;
  if (init(0) != 0 || retain(&context, 0) != 0 || enter(context) != 0) return -1;
  return allocate(&address, bytes);
}

int main(void) {
  spillway_memory memory = {.size = sizeof memory};
  if (spillway_limit(0, (uint64_t)64 << 20) != SPILLWAY_OK || spillway_query(0, &memory) != SPILLWAY_OK) {
    fprintf(stderr, "consumer: %s\n", spillway_last_error());
    return 1;
  }
  printf("limit %" PRIu64 " of %" PRIu64 " MiB\n", memory.limit >> 20, memory.device_bytes >> 20);
  printf("cuMemAlloc: %d\n", ask_driver((size_t)1 << 40));
  printf("cores: %d\n", loaded_cores());
  return 0;
}
