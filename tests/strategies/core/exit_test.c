/* Memory is freed, and handed out from the cache, by an exit handler and by a destructor: after main, when
 * objects of threads and of libraries are gone already. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "strategies/core/core.h"

static void* block;
static void* other;

static void free_late(void) {
  if (spillway_core()->free(block, NULL) != SPILLWAY_OK) _exit(3);
  if (spillway_core()->allocate(0, 0, 0, 1 << 20, &block, NULL) != SPILLWAY_OK) _exit(4);
}

__attribute__((destructor(101))) static void free_last(void) {
  if (spillway_core()->free(other, NULL) != SPILLWAY_OK || spillway_core()->check_invariants() != 1) _exit(5);
}

int main(void) {
  atexit(free_late);
  if (spillway_core()->allocate(0, 0, 0, 1 << 20, &block, NULL) != SPILLWAY_OK ||
      spillway_core()->allocate(0, 0, 0, 1 << 22, &other, NULL) != SPILLWAY_OK) {
    fprintf(stderr, "%s\n", spillway_last_error());
    return 1;
  }
  return 0;
}
