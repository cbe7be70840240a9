/* The thread that makes host memory ahead: it makes none for a program that has room, some once little is
 * left, and what a spill took again after it; a process ends as it would without that thread. */
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver/simulator_control.h"
#include "spillway/spillway.h"
#include "strategies/core/core.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)
#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, spillway_last_error()); \
      _exit(1);                                                                                  \
    }                                                                                            \
  } while (0)

static const SpillwaySimulatorControl* control;

static int close_gate(uint64_t microseconds) {
  (void)microseconds;
  return 1;
}
static void open_gate(void) {}
static uint32_t no_captures(void) {
  return 0;
}

static int times_asked_for_marks = 0;
static void begin_marks(void) {
  ++times_asked_for_marks;
}

static void start(void) {
  void* driver = dlopen(getenv("SPILLWAY_DRIVER"), RTLD_NOW | RTLD_GLOBAL);
  CHECK(driver != NULL);
  const SpillwaySimulatorControl* (*find)(void) =
      (const SpillwaySimulatorControl* (*)(void))dlsym(driver, "spillway_simulator_control");
  CHECK(find != NULL);
  control = find();
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  void* context = NULL;
  CHECK(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0);
  static const spillway_gate gate = {.size = sizeof gate,
                                     .close = close_gate,
                                     .open = open_gate,
                                     .captures = no_captures,
                                     .begin_marks = begin_marks};
  spillway_core()->set_gate(&gate);
  CHECK(spillway_limit(0, 256 * MIB) == SPILLWAY_OK);
}

static void* get(uint64_t bytes) {
  void* address = NULL;
  CHECK(spillway_core()->allocate(0, 0, 0, bytes, &address, NULL) == SPILLWAY_OK);
  return address;
}

static uint64_t creates(void) {
  return control->calls("cuMemCreate");
}

/* Of a minute. */
static void wait_for_creates(uint64_t count) {
  const time_t end = time(NULL) + 60;
  while (creates() < count && time(NULL) < end) sched_yield();
  CHECK(creates() == count);
}

/* Returns when the program holds so much that host memory has been made. */
static void come_near_the_limit(void) {
  get(PAGE); /* the device is opened, and tried */
  const uint64_t before = creates();
  for (int i = 0; i < 10; ++i) get(20 * MIB);
  CHECK(creates() == before + 200 * MIB / PAGE);
  CHECK(times_asked_for_marks == 1);
  spillway_core()->mark_progress(0);
  get(40 * MIB); /* 15/16 of the limit */
  /* One more page finds out where host memory can be made. */
  wait_for_creates(before + 240 * MIB / PAGE + 8 * MIB / PAGE + 1);
}

static void spill(void) {
  for (int i = 0; i < 50; ++i) CHECK(spillway_core()->free(get(512), NULL) == SPILLWAY_OK);
  get(40 * MIB);
  spillway_memory memory = {.size = sizeof memory};
  CHECK(spillway_query(0, &memory) == SPILLWAY_OK && memory.spilled >= 28 * MIB);
}

static void exit_beside_it(void) {
  spill();
  exit(7);
}

static void be_killed_beside_it(void) {
  spill();
  raise(SIGKILL);
}

static void fork_beside_it(void) {
  spill();
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    void* address = NULL;
    spillway_core()->mark_progress(0);
    exit(spillway_core()->allocate(0, 0, 0, 60 * MIB, &address, NULL) == SPILLWAY_OK ? 1 : 8);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);
  exit(7);
}

/* How a process ends that does so after its device has become full. */
static int status_of(void (*end)(void)) {
  const pid_t child = fork();
  if (child == 0) {
    start();
    come_near_the_limit();
    end();
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return status;
}

int main(void) {
  int status = status_of(exit_beside_it);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  status = status_of(fork_beside_it);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  status = status_of(be_killed_beside_it);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  return 0;
}
