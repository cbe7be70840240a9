/* Starting with bad settings is an error with a text, never a crash, and may be tried again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strategies/core/core.h"

static int failures = 0;
#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #condition, spillway_last_error()); \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

static void refused(const char* variable, const char* value, const char* says) {
  const spillway_core_table* core = spillway_core();
  setenv(variable, value, 1);
  CHECK(core->start() == SPILLWAY_INVALID);
  CHECK(strstr(spillway_last_error(), variable) != NULL);
  CHECK(strstr(spillway_last_error(), says) != NULL);
  void* address = &failures;
  CHECK(core->allocate(0, 0, 0, 100, &address, NULL) == SPILLWAY_INVALID && address == NULL);
  unsetenv(variable);
}

int main(void) {
  const spillway_core_table* core = spillway_core();
  char text[1024];
  memset(text, 'x', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  refused("SPILLWAY_LIMIT", "lots", "8GiB");
  refused("SPILLWAY_LIMIT", "-4GiB", "8GiB");
  refused("SPILLWAY_STRATEGIES", "stitch,magic", "release_cache");
  refused("SPILLWAY_STRATEGIES", text, "xxx");
  refused("SPILLWAY_TRACE", "/no/such/folder/a.trace", "/no/such/folder");

  /* Before the start everything has an answer. */
  CHECK(core->free(&failures, NULL) == SPILLWAY_NOT_FOUND);
  CHECK(core->empty_cache(0, SPILLWAY_EVERY_POOL) == 0 && core->requests() == 0 &&
        core->check_invariants() == 1);
  CHECK(spillway_chosen_move(NULL) == 0 && strcmp(spillway_trace_path(), "") == 0);
  CHECK(spillway_unregister(3) == SPILLWAY_NOT_FOUND);
  CHECK(spillway_step_begin(1, 0, 2) == SPILLWAY_OK && spillway_phase("load") == SPILLWAY_OK);

  char trace[256];
  const char* folder = getenv("TMPDIR");
  snprintf(trace, sizeof(trace), "%s/spillway_start_test.%d.trace", folder ? folder : "/tmp", (int)getpid());
  setenv("SPILLWAY_TRACE", trace, 1);
  setenv("SPILLWAY_LIMIT", "64MiB", 1);
  setenv("SPILLWAY_STRATEGIES", "release_cache", 1);
  CHECK(core->start() == SPILLWAY_OK && core->start() == SPILLWAY_OK);
  spillway_memory memory = {.size = sizeof(memory)};
  CHECK(spillway_query(0, &memory) == SPILLWAY_OK && memory.limit == (uint64_t)64 << 20);
  size_t strategies = 0;
  CHECK(spillway_query_strategies(NULL, 0, &strategies) == SPILLWAY_OK && strategies == 1);
  CHECK(strcmp(spillway_trace_path(), trace) == 0);
  CHECK(spillway_step_begin(7, 1, 2) == SPILLWAY_OK && spillway_step_end(7, 100) == SPILLWAY_OK);
  CHECK(spillway_plan_changed(7, 2, 3, 1, "split") == SPILLWAY_OK);
  spillway_strategy strategy = {.size = sizeof(strategy), .name = "mine"};
  CHECK(spillway_register(&strategy, NULL) == SPILLWAY_INVALID);
  remove(trace);
  return failures != 0;
}
