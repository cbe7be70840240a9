/* A C program that keeps what it could load again on the GPU, and gives it up when anybody in the process
 * runs out of memory: it registers a strategy with Spillway. The request that fails here is the driver's own;
 * under `spillway run` it comes to the strategy, without it the program dies. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "spillway/spillway.h"

#define TILE_BYTES (64ull << 20)
#define MOST_TILES 16384 /* a terabyte: more than any card has */

/* Tiles in the order of their last use. */
static struct {
  pthread_mutex_t lock;
  CUdeviceptr tiles[MOST_TILES];
  size_t count;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Asked on the thread whose request failed, which may be one that holds the lock: then there is nothing to
 * offer. */
static spillway_offer offer_tiles(void* context, const spillway_oom* oom) {
  (void)context, (void)oom;
  spillway_offer offer = {0, 0};
  if (pthread_mutex_trylock(&cache.lock) != 0) return offer;
  offer.bytes = cache.count * TILE_BYTES;
  offer.cost_us = cache.count * 500; /* to load them again */
  pthread_mutex_unlock(&cache.lock);
  return offer;
}

/* Frees the oldest tiles, as many as the request is short of, and says how much that was. */
static uint64_t drop_tiles(void* context, const spillway_oom* oom) {
  (void)context;
  if (pthread_mutex_trylock(&cache.lock) != 0) return 0;
  const uint64_t wanted = oom->short_bytes != 0 ? oom->short_bytes : oom->requested_bytes;
  uint64_t freed = 0;
  size_t dropped = 0;
  while (dropped < cache.count && freed < wanted && cuMemFree(cache.tiles[dropped]) == CUDA_SUCCESS) {
    freed += TILE_BYTES;
    ++dropped;
  }
  cache.count -= dropped;
  for (size_t i = 0; i < cache.count; ++i) cache.tiles[i] = cache.tiles[i + dropped];
  pthread_mutex_unlock(&cache.lock);
  return freed;
}

static void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void fill_the_card(void) {
  size_t unused = 0, total = 0;
  cuMemGetInfo(&unused, &total);
  pthread_mutex_lock(&cache.lock);
  while (cache.count < MOST_TILES && cache.count * TILE_BYTES < total * 3 / 4 &&
         cuMemAlloc(&cache.tiles[cache.count], TILE_BYTES) == CUDA_SUCCESS)
    ++cache.count;
  pthread_mutex_unlock(&cache.lock);
}

int main(void) {
  CUdevice device;
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
    fail("no CUDA device");
  const spillway_strategy strategy = {.size = sizeof strategy,
                                      .name = "drop tiles",
                                      .guarantee = SPILLWAY_BIT_EXACT,
                                      .offer = offer_tiles,
                                      .relieve = drop_tiles};
  spillway_strategy_id id = 0;
  if (spillway_register(&strategy, &id) != SPILLWAY_OK) fail(spillway_last_error());

  fill_the_card();
  printf("%zu tiles on the card\n", cache.count);
  size_t unused = 0, total = 0;
  cuMemGetInfo(&unused, &total);
  CUdeviceptr result;
  if (cuMemAlloc(&result, total / 2) != CUDA_SUCCESS) fail("out of memory: run it under `spillway run`");
  printf("half of the card for the result; %zu tiles are left\n", cache.count);
  cuMemFree(result);
  spillway_unregister(id);
  return 0;
}
