/* The limit and the reserve in one budget: what ordinary requests leave to others, until a failure has chosen
 * a plan move and the program unwinds. SPILLWAY_LIMIT is 64 MiB, SPILLWAY_RESERVE 16 MiB. */
#include <stdio.h>

#include "strategies/core/core.h"

#define MIB ((uint64_t)1 << 20)

static int failures = 0;
#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #condition, spillway_last_error()); \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

static const spillway_core_table* core;

static spillway_status get(uint64_t bytes, void** block) {
  return core->allocate(0, 0, 0, bytes, block, NULL);
}

static spillway_offer offer_move(void* context, const spillway_oom* oom) {
  (void)context;
  return (spillway_offer){oom->short_bytes, 1000};
}

static uint64_t choose_move(void* context, const spillway_oom* oom) {
  (void)context, (void)oom;
  return 0;
}

int main(void) {
  core = spillway_core();
  const spillway_budget* budget = core->budget();
  CHECK(budget != NULL && budget->limit_bytes == 64 * MIB && budget->reserve_bytes == 16 * MIB);
  void *first = NULL, *second = NULL;
  CHECK(get(48 * MIB, &first) == SPILLWAY_OK && budget->taken_bytes[0] == 48 * MIB);
  CHECK(get(2 * MIB, &second) == SPILLWAY_OUT_OF_MEMORY);
  CHECK(core->free(first, NULL) == SPILLWAY_OK && core->empty_cache(0, SPILLWAY_EVERY_POOL) == 48 * MIB);
  CHECK(budget->taken_bytes[0] == 0 && budget->native_bytes[0] == 0);

  spillway_strategy move = {.size = sizeof(move),
                            .name = "split",
                            .needs = SPILLWAY_NEEDS_UNWINDING,
                            .offer = offer_move,
                            .relieve = choose_move};
  spillway_strategy_id id = 0;
  CHECK(spillway_register(&move, &id) == SPILLWAY_OK);
  CHECK(get(48 * MIB, &first) == SPILLWAY_OK);
  CHECK(get(4 * MIB, &second) == SPILLWAY_UNWIND && budget->reserve_bytes == 0);
  CHECK(get(16 * MIB, &second) == SPILLWAY_OK && budget->taken_bytes[0] == 64 * MIB);
  CHECK(core->free(second, NULL) == SPILLWAY_OK && core->empty_cache(0, SPILLWAY_EVERY_POOL) == 16 * MIB);
  CHECK(spillway_step_begin(1, 1, 2) == SPILLWAY_OK && budget->reserve_bytes == 16 * MIB);
  CHECK(get(4 * MIB, &second) == SPILLWAY_UNWIND);
  CHECK(core->check_invariants() == 1);
  return failures != 0;
}
