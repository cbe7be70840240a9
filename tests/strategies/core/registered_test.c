/* The C interface in a plain C program, without a gate: registered blocks go to a file and come back bit for
 * bit, and each error says what was wrong. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/spillway.h"
#include "strategies/core/core.h"

#define MIB ((uint64_t)1 << 20)
#define BLOCK (10 * MIB)
#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, spillway_last_error()); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

enum { kBlocks = 3 };
static int (*copy_to_device)(unsigned long long, const void*, size_t);
static int (*copy_to_host)(void*, unsigned long long, size_t);
static unsigned char host[BLOCK];

static void use_the_driver(void) {
  void* driver = dlopen(getenv("SPILLWAY_DRIVER"), RTLD_NOW | RTLD_GLOBAL);
  CHECK(driver != NULL);
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  copy_to_device = (int (*)(unsigned long long, const void*, size_t))dlsym(driver, "cuMemcpyHtoD_v2");
  copy_to_host = (int (*)(void*, unsigned long long, size_t))dlsym(driver, "cuMemcpyDtoH_v2");
  void* context = NULL;
  CHECK(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0);
}

static void* get(uint64_t bytes) {
  void* address = NULL;
  return spillway_core()->allocate(0, 0, 0, bytes, &address, NULL) == SPILLWAY_OK ? address : NULL;
}

static void fill(unsigned seed) {
  for (size_t i = 0; i < sizeof host; ++i) host[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
}

static void expect_bytes(void* block, unsigned seed) {
  static unsigned char found[BLOCK];
  CHECK(copy_to_host(found, (unsigned long long)(uintptr_t)block, sizeof found) == 0);
  fill(seed);
  CHECK(memcmp(found, host, sizeof host) == 0);
}

static uint64_t in_file(void) {
  spillway_memory memory = {.size = sizeof memory};
  CHECK(spillway_query(0, &memory) == SPILLWAY_OK);
  CHECK(memory.spilled == memory.spilled_nvme + memory.spilled_peer);
  return memory.spilled_nvme;
}

int main(void) {
  use_the_driver();
  void* blocks[kBlocks];
  CHECK(spillway_limit(0, 32 * MIB) == SPILLWAY_OK);
  for (unsigned i = 0; i < kBlocks; ++i) {
    CHECK((blocks[i] = get(BLOCK)) != NULL);
    fill(i);
    CHECK(copy_to_device((unsigned long long)(uintptr_t)blocks[i], host, sizeof host) == 0);
    CHECK(spillway_block_add(blocks[i], BLOCK) == SPILLWAY_OK);
  }
  void* work = get(30 * MIB);
  CHECK(work != NULL && in_file() == kBlocks * BLOCK);
  CHECK(spillway_block_touch(blocks[0]) == SPILLWAY_OUT_OF_MEMORY);
  CHECK(strstr(spillway_last_error(), "spillway_block_touch: out of memory") != NULL);
  CHECK(spillway_block_done(blocks[0]) == SPILLWAY_INVALID);
  CHECK(spillway_block_remove(blocks[0]) == SPILLWAY_OUT_OF_MEMORY);
  CHECK(spillway_core()->free(work, NULL) == SPILLWAY_OK);

  for (unsigned i = 0; i < kBlocks; ++i) {
    CHECK(spillway_block_touch(blocks[i]) == SPILLWAY_OK);
    expect_bytes(blocks[i], i);
    CHECK(spillway_block_done(blocks[i]) == SPILLWAY_OK);
  }
  CHECK((work = get(20 * MIB)) != NULL && in_file() != 0);
  CHECK(spillway_core()->free(work, NULL) == SPILLWAY_OK);
  CHECK(spillway_block_remove(blocks[0]) == SPILLWAY_OK);
  expect_bytes(blocks[0], 0);
  CHECK(spillway_core()->free(blocks[2], NULL) == SPILLWAY_OK);
  CHECK(spillway_block_touch(blocks[2]) == SPILLWAY_NOT_FOUND);
  puts("registered blocks: ok");
  return 0;
}
