/* Spillway's C interfaces from a plain C program, on the simulated driver: allocate, free, run out, be
 * rescued by a strategy of the program's own, unwind for a plan move, and unregister from another thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strategies/core/core.h"

#define MIB ((uint64_t)1 << 20)

static int failures = 0;
#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              spillway_last_error());                                                 \
      ++failures;                                                                     \
    }                                                                                 \
  } while (0)

static const spillway_core_table* core;

static spillway_memory query(void) {
  spillway_memory memory = {.size = sizeof(memory)};
  CHECK(spillway_query(0, &memory) == SPILLWAY_OK);
  const uint64_t sum = memory.live + memory.rounding + memory.stranded + memory.cached + memory.pending +
                       memory.pools + memory.context + memory.others + memory.free;
  CHECK(memory.limit == sum);
  return memory;
}

static void* get(uint64_t bytes, spillway_status* status, spillway_failure* failure) {
  void* address = NULL;
  spillway_failure ignored = {.size = sizeof(ignored)};
  *status = core->allocate(0, 0, 0, bytes, &address, failure ? failure : &ignored);
  return address;
}

static void allocates_and_frees(void) {
  spillway_status status;
  void* block = get(3 * MIB + 1, &status, NULL);
  CHECK(status == SPILLWAY_OK && block != NULL);
  spillway_memory memory = query();
  CHECK(memory.live == 3 * MIB + 1 && memory.rounding == 511 && memory.reserved == 4 * MIB);
  spillway_block_info info;
  CHECK(core->find_block((char*)block + 100, &info) == SPILLWAY_OK);
  CHECK(info.address == (uint64_t)block && info.requested_bytes == 3 * MIB + 1 && info.state == 1);
  CHECK(core->free((char*)block + 512, NULL) == SPILLWAY_NOT_FOUND);
  CHECK(core->free(block, NULL) == SPILLWAY_OK);
  CHECK(core->free(block, NULL) == SPILLWAY_NOT_FOUND);
  CHECK(get(0, &status, NULL) == NULL && status == SPILLWAY_OK);
  CHECK(query().cached == 4 * MIB);
  CHECK(core->empty_cache(0, SPILLWAY_EVERY_POOL) == 4 * MIB);
  CHECK(query().reserved == 0);
  CHECK(core->allocate(99, 0, 0, 1, &block, NULL) != SPILLWAY_OK);
}

/* A strategy that frees a block which the program can do without. */
typedef struct {
  void* spare;
  uint64_t bytes;
  int offered, relieved;
  spillway_status inside;
} hoard;

static spillway_offer offer_spare(void* context, const spillway_oom* oom) {
  hoard* mine = context;
  ++mine->offered;
  CHECK(oom->size == sizeof(*oom) && oom->incident != 0 && oom->short_bytes != 0);
  CHECK(strcmp(oom->phase, "forward") == 0);
  return (spillway_offer){mine->spare ? mine->bytes : 0, 10};
}

static uint64_t relieve_spare(void* context, const spillway_oom* oom) {
  hoard* mine = context;
  (void)oom;
  ++mine->relieved;
  mine->inside = spillway_limit(0, 0);
  CHECK(core->free(mine->spare, NULL) == SPILLWAY_OK);
  mine->spare = NULL;
  return mine->bytes;
}

static void a_strategy_of_the_programs_own_rescues(void) {
  spillway_status status;
  CHECK(spillway_limit(0, 64 * MIB) == SPILLWAY_OK);
  hoard mine = {.bytes = 40 * MIB};
  mine.spare = get(mine.bytes, &status, NULL);
  spillway_strategy strategy = {.size = sizeof(strategy),
                                .name = "spare",
                                .offer = offer_spare,
                                .relieve = relieve_spare,
                                .context = &mine};
  spillway_strategy_id id = 0;
  CHECK(spillway_register(&strategy, &id) == SPILLWAY_OK && id != 0);
  spillway_phase("forward");
  void* block = get(50 * MIB, &status, NULL);
  CHECK(status == SPILLWAY_OK && mine.relieved == 1 && mine.inside == SPILLWAY_INVALID);
  spillway_memory memory = query();
  CHECK(memory.rescued == 1 && memory.failures == 1);
  spillway_failure failure = {.size = sizeof(failure)};
  CHECK(get(50 * MIB, &status, &failure) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  CHECK(failure.requested_bytes == 50 * MIB && failure.memory.live == 50 * MIB && failure.incident == 2);
  CHECK(strstr(failure.text, "out of memory") != NULL &&
        strstr(failure.text, "limit: 36.00 MiB too much") != NULL);
  CHECK(failure.largest_extent_bytes == 14 * MIB);
  CHECK(spillway_unregister(id) == SPILLWAY_OK);
  CHECK(spillway_unregister(id) == SPILLWAY_NOT_FOUND);
  CHECK(core->free(block, NULL) == SPILLWAY_OK);
  spillway_phase(NULL);
}

static int moves_marked = 0;
static spillway_offer offer_move(void* context, const spillway_oom* oom) {
  (void)context;
  return (spillway_offer){oom->short_bytes, 1000};
}
static uint64_t mark_move(void* context, const spillway_oom* oom) {
  (void)context, (void)oom;
  ++moves_marked;
  return 0;
}

static void a_plan_move_unwinds(void) {
  spillway_status status;
  spillway_strategy exact = {.size = sizeof(exact),
                             .name = "recompute",
                             .needs = SPILLWAY_NEEDS_UNWINDING,
                             .offer = offer_move,
                             .relieve = mark_move};
  spillway_strategy split = exact;
  split.name = "split";
  split.guarantee = SPILLWAY_NUMERICALLY_EQUAL;
  spillway_strategy_id exact_id = 0, split_id = 0;
  CHECK(spillway_register(&split, &split_id) == SPILLWAY_OK);
  CHECK(spillway_register(&exact, &exact_id) == SPILLWAY_OK);
  spillway_failure failure = {.size = sizeof(failure)};
  CHECK(get(65 * MIB, &status, &failure) == NULL && status == SPILLWAY_UNWIND);
  CHECK(failure.move == exact_id && moves_marked == 1);
  uint64_t incident = 0;
  CHECK(spillway_chosen_move(&incident) == exact_id && incident == failure.incident);
  CHECK(spillway_chosen_move(NULL) == 0);
  CHECK(spillway_unregister(exact_id) == SPILLWAY_OK);
  CHECK(get(65 * MIB, &status, NULL) == NULL && status == SPILLWAY_UNWIND);
  CHECK(spillway_chosen_move(NULL) == split_id);
  CHECK(spillway_allow(SPILLWAY_BIT_EXACT) == SPILLWAY_OK);
  CHECK(get(65 * MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  CHECK(spillway_allow(SPILLWAY_STATISTICS_CHANGE) == SPILLWAY_OK);
  CHECK(spillway_unregister(split_id) == SPILLWAY_OK);
  spillway_memory memory = query();
  CHECK(memory.unwound == 2);
  spillway_strategy_counts counts[8] = {{.size = sizeof(counts[0])}};
  size_t filled = 0;
  CHECK(spillway_query_strategies(counts, 8, &filled) == SPILLWAY_OK && filled == 10);
  CHECK(strcmp(counts[1].name, "stitch") == 0);
}

static void a_plan_move_does_without_functions(void) {
  spillway_status status;
  spillway_offer offer = {.bytes = 0, .cost_us = 1};
  spillway_strategy move = {.size = sizeof(move), .name = "smaller batches", .context = &offer};
  CHECK(spillway_register(&move, NULL) == SPILLWAY_INVALID);
  move.needs = SPILLWAY_NEEDS_UNWINDING;
  move.context = NULL;
  CHECK(spillway_register(&move, NULL) == SPILLWAY_INVALID);
  move.context = &offer;
  spillway_strategy_id id = 0;
  CHECK(spillway_register(&move, &id) == SPILLWAY_OK);
  CHECK(get(65 * MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  offer.bytes = 65 * MIB;
  CHECK(get(65 * MIB, &status, NULL) == NULL && status == SPILLWAY_UNWIND);
  CHECK(spillway_chosen_move(NULL) == id);
  CHECK(spillway_unregister(id) == SPILLWAY_OK);
}

static atomic_int entered, may_return, returned;
static uint64_t slow_relieve(void* context, const spillway_oom* oom) {
  (void)context, (void)oom;
  atomic_store(&entered, 1);
  while (!atomic_load(&may_return)) usleep(1000);
  usleep(20000);
  atomic_store(&returned, 1);
  return 0;
}
static void* fail_a_request(void* unused) {
  (void)unused;
  spillway_status status;
  CHECK(get(65 * MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  return NULL;
}

static void unregistering_waits_for_a_running_call(void) {
  spillway_strategy strategy = {
      .size = sizeof(strategy), .name = "slow", .offer = offer_move, .relieve = slow_relieve};
  spillway_strategy_id id = 0;
  CHECK(spillway_register(&strategy, &id) == SPILLWAY_OK);
  pthread_t thread;
  pthread_create(&thread, NULL, fail_a_request, NULL);
  while (!atomic_load(&entered)) usleep(1000);
  atomic_store(&may_return, 1);
  CHECK(spillway_unregister(id) == SPILLWAY_OK);
  CHECK(atomic_load(&returned) == 1);
  pthread_join(thread, NULL);
}

static void bad_arguments_are_refused(void) {
  spillway_strategy strategy = {
      .size = sizeof(strategy), .name = "", .offer = offer_move, .relieve = mark_move};
  CHECK(spillway_register(NULL, NULL) == SPILLWAY_INVALID);
  CHECK(spillway_register(&strategy, NULL) == SPILLWAY_INVALID);
  CHECK(spillway_query(0, NULL) == SPILLWAY_INVALID);
  CHECK(spillway_query(77, &(spillway_memory){.size = sizeof(spillway_memory)}) != SPILLWAY_OK);
  CHECK(spillway_block_add(&failures, 8) == SPILLWAY_NOT_FOUND);
  CHECK(spillway_unpin(&failures) == SPILLWAY_NOT_FOUND);
  CHECK(core->allocate(0, 0, 0, 1, NULL, NULL) == SPILLWAY_INVALID);
}

static void blocks_and_pins_are_kept(void) {
  spillway_status status;
  void* block = get(MIB, &status, NULL);
  CHECK(spillway_block_add(block, 2 * MIB) == SPILLWAY_INVALID);
  CHECK(spillway_block_add(block, MIB) == SPILLWAY_OK && spillway_block_add(block, MIB) == SPILLWAY_INVALID);
  CHECK(spillway_block_done(block) == SPILLWAY_INVALID);
  CHECK(spillway_block_touch(block) == SPILLWAY_OK && spillway_block_done(block) == SPILLWAY_OK);
  CHECK(spillway_block_remove(block) == SPILLWAY_OK && spillway_block_remove(block) == SPILLWAY_NOT_FOUND);
  CHECK(spillway_pin(block, MIB) == SPILLWAY_OK && spillway_pin(block, MIB) == SPILLWAY_OK);
  CHECK(spillway_unpin(block) == SPILLWAY_OK && spillway_unpin(block) == SPILLWAY_OK);
  CHECK(spillway_unpin(block) == SPILLWAY_NOT_FOUND);
  CHECK(core->free(block, NULL) == SPILLWAY_OK);
}

static void injected_failures_fire_once_or_for_good(void) {
  spillway_status status;
  spillway_limit(0, 0);
  core->empty_cache(0, SPILLWAY_EVERY_POOL);
  core->fail_request(2, 0);
  void* first = get(MIB, &status, NULL);
  CHECK(status == SPILLWAY_OK);
  CHECK(get(MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  void* second = get(MIB, &status, NULL);
  CHECK(status == SPILLWAY_OK);
  CHECK(core->fail_request(1, 1) == 1);
  CHECK(get(MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  CHECK(get(MIB, &status, NULL) == NULL && status == SPILLWAY_OUT_OF_MEMORY);
  CHECK(core->fail_request(0, 0) == 2);
  CHECK(core->free(first, NULL) == SPILLWAY_OK && core->free(second, NULL) == SPILLWAY_OK);
  /* With idle pages, release_cache answers a failure that happens once. */
  void* large = get(8 * MIB, &status, NULL);
  core->free(large, NULL);
  core->fail_request(1, 0);
  large = get(8 * MIB, &status, NULL);
  CHECK(status == SPILLWAY_OK && core->fail_request(0, 0) == 1);
  core->free(large, NULL);
}

static uint64_t two_pages(void* context, uint64_t bytes) {
  (void)context;
  return bytes < 4 * MIB ? 4 * MIB : bytes;
}
static uint32_t make_segment(void* context, uint64_t bytes, uint64_t* address) {
  uint64_t* left = context;
  if (bytes > *left) return SPILLWAY_SEGMENT_REFUSED;
  *left -= bytes;
  *address = (uint64_t)1 << 46;
  return SPILLWAY_SEGMENT_MADE;
}
static void what_the_host_refuses_is_a_failure_of_its_own(void) {
  static spillway_incident_totals met;
  core->count_incidents(&met);
  spillway_driver_request request = {.size = sizeof(request), .device = 0, .bytes = 3 * MIB};
  uint64_t first = 0, second = 0;
  CHECK(core->note_host_failure(&request, 0, &first) == SPILLWAY_OK);
  CHECK(first != 0 && met.failures == 1 && met.gave_up == 1 && met.unwound == 0);
  CHECK(core->note_host_failure(&request, 1, &second) == SPILLWAY_OK && second == first + 1);
  CHECK(met.failures == 2 && met.gave_up == 1 && met.unwound == 1);
  request.device = 99;
  CHECK(core->note_host_failure(&request, 0, NULL) == SPILLWAY_NOT_FOUND);
  CHECK(strstr(spillway_last_error(), "no device 99") != NULL);
  request.size = 1;
  CHECK(core->note_host_failure(&request, 0, NULL) == SPILLWAY_INVALID);
  CHECK(core->note_host_failure(NULL, 0, NULL) == SPILLWAY_INVALID);
  CHECK(met.failures == 2);
  core->count_incidents(NULL);
}

static void what_no_framework_refuses_is_no_failure(void) {
  static spillway_incident_totals met;
  core->count_incidents(&met);
  CHECK(core->note_framework_failure(0, 3 * MIB) == SPILLWAY_OK && met.failures == 0);
  CHECK(core->note_framework_failure(99, 3 * MIB) == SPILLWAY_NOT_FOUND);
  CHECK(strstr(spillway_last_error(), "no device 99") != NULL);
  CHECK(core->note_framework_failure(-1, 3 * MIB) == SPILLWAY_NOT_FOUND && met.failures == 0);
  core->count_incidents(NULL);
}

static void free_segment(void* context, uint64_t address, uint64_t bytes) {
  CHECK(address == (uint64_t)1 << 46);
  *(uint64_t*)context += bytes;
}
static void end_source(void* context) {
  *(uint64_t*)context += 1;
}

static void a_pool_has_a_source_of_its_own(void) {
  uint64_t left = 4 * MIB;
  spillway_segment_source source = {0, &left, two_pages, make_segment, free_segment, end_source};
  CHECK(core->set_segment_source(0, 7, &source) == SPILLWAY_INVALID && left == 4 * MIB);
  source.size = sizeof(source);
  CHECK(core->set_segment_source(0, 0, &source) == SPILLWAY_INVALID && left == 4 * MIB + 1);
  CHECK(core->set_segment_source(0, 7, &source) == SPILLWAY_OK);
  void *first = NULL, *second = NULL, *none = NULL;
  spillway_failure failure = {.size = sizeof(failure)};
  CHECK(core->allocate(0, 0, 7, MIB, &first, &failure) == SPILLWAY_OK && (uint64_t)first == (uint64_t)1
                                                                                                << 46);
  CHECK(core->allocate(0, 0, 7, MIB, &second, &failure) == SPILLWAY_OK);
  spillway_block_info info;
  CHECK(core->find_block(second, &info) == SPILLWAY_OK && info.segment == (uint64_t)first && info.pool == 7);
  CHECK(core->allocate(0, 0, 7, 3 * MIB, &none, &failure) == SPILLWAY_OUT_OF_MEMORY);
  CHECK(strstr(failure.text, "own allocator has no more memory") != NULL &&
        failure.requested_bytes == 3 * MIB);
  CHECK(core->free(first, NULL) == SPILLWAY_OK && core->free(second, NULL) == SPILLWAY_OK);
  CHECK(core->set_pool(0, 7, SPILLWAY_POOL_RELEASED) == SPILLWAY_OK);
  CHECK(core->empty_cache(0, 7) == 4 * MIB && left == 4 * MIB + 2);
}

int main(void) {
  core = spillway_core();
  CHECK(core->size == sizeof(*core) && core->version == SPILLWAY_CORE_VERSION);
  if (core->start() != SPILLWAY_OK) {
    fprintf(stderr, "start: %s\n", spillway_last_error());
    return 1;
  }
  allocates_and_frees();
  bad_arguments_are_refused();
  blocks_and_pins_are_kept();
  a_strategy_of_the_programs_own_rescues();
  a_plan_move_unwinds();
  a_plan_move_does_without_functions();
  unregistering_waits_for_a_running_call();
  injected_failures_fire_once_or_for_good();
  a_pool_has_a_source_of_its_own();
  what_the_host_refuses_is_a_failure_of_its_own();
  what_no_framework_refuses_is_no_failure();
  CHECK(core->check_invariants() == 1);
  if (failures == 0) printf("all checks hold\n");
  return failures != 0;
}
