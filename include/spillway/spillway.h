/* Spillway's C interface: register strategies, tag what the program does, ask what Spillway holds.
 *
 * Everything here is served by libspillway.so, the one core in a process. Structs start with their size, so
 * that a program built against an older header keeps working. Thread-safety: every function may be called
 * from any thread, but not from inside `offer` or `relieve` unless it says so. Errors: functions return a
 * spillway_status; nothing throws, nothing aborts. Units: bytes, microseconds. */
#ifndef SPILLWAY_H
#define SPILLWAY_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SPILLWAY_API __attribute__((visibility("default")))
#else
#define SPILLWAY_API
#endif

#define SPILLWAY_VERSION 1u

typedef enum spillway_status {
  SPILLWAY_OK = 0,
  SPILLWAY_INVALID = 1,       /* an argument: spillway_last_error() says which */
  SPILLWAY_NOT_FOUND = 2,     /* no such strategy or device */
  SPILLWAY_OUT_OF_MEMORY = 3, /* not served, and the ladder gave up */
  SPILLWAY_UNWIND = 4,        /* not served: unwind, apply the chosen plan move, try again */
  SPILLWAY_UNAVAILABLE = 5,   /* no CUDA driver, one that lacks what is needed, or a child of fork */
  SPILLWAY_DRIVER_FAILED = 6, /* the driver refused, for another reason than memory: spillway_last_error() */
  SPILLWAY_FILE_FAILED = 7    /* what lies in a file could not be read back: spillway_last_error() */
} spillway_status;

typedef enum spillway_guarantee {
  SPILLWAY_BIT_EXACT = 0,
  SPILLWAY_NUMERICALLY_EQUAL = 1,
  SPILLWAY_STATISTICS_CHANGE = 2
} spillway_guarantee;

enum {
  SPILLWAY_NEEDS_IDLE_DEVICE = 1,
  SPILLWAY_NEEDS_GATE = 2, /* Spillway's own strategies: spillway_register refuses it */
  SPILLWAY_NEEDS_FRAMEWORK_LOCK = 4,
  SPILLWAY_NEEDS_RANKS = 8, /* with SPILLWAY_NEEDS_UNWINDING only: ranks can agree on a plan alone */
  SPILLWAY_NEEDS_UNWINDING = 16
};

/* One allocation that could not be served. */
typedef struct spillway_oom {
  uint32_t size;
  uint32_t attempt; /* 0 in the incident's first run of the strategies */
  uint64_t incident;
  uint64_t requested_bytes, rounded_bytes, short_bytes, largest_extent_bytes;
  int32_t device;
  uint32_t allowed; /* weakest spillway_guarantee that the program accepts */
  uint64_t stream, pool;
  const char* library;
  const char* phase;
} spillway_oom;

typedef struct spillway_offer {
  uint64_t bytes;   /* 0: nothing to offer */
  uint64_t cost_us; /* of the relief, and of what it costs the program later: what decides against a spill */
} spillway_offer;

/* A strategy of the program's own. `offer` makes no CUDA call and allocates nothing. `relieve` returns the
 * bytes that it made free, measured; it may free memory through Spillway but must not allocate from it. A
 * strategy that needs unwinding (a plan move) has `relieve` called to mark it chosen: its return value is
 * ignored, the request fails with SPILLWAY_UNWIND, and the program asks spillway_chosen_move() which one it
 * was. Such a strategy may do without functions, for a language whose own must not run inside an allocation
 * (Python: the thread that fails may wait for the interpreter's lock): with a NULL `offer`, `context` is a
 * spillway_offer of the program's, which lives until the strategy is unregistered and whose fields it may
 * change at any time. `relieve` may be NULL too. */
typedef struct spillway_strategy {
  uint32_t size;
  const char* name; /* copied */
  uint32_t guarantee;
  uint32_t needs;
  spillway_offer (*offer)(void* context, const spillway_oom* oom);
  uint64_t (*relieve)(void* context, const spillway_oom* oom);
  void* context;
} spillway_strategy;

typedef uint64_t spillway_strategy_id; /* 0: none */

SPILLWAY_API spillway_status spillway_register(const spillway_strategy* strategy, spillway_strategy_id* id);
/* Waits until running calls of the strategy have returned; then neither function is called again. Called from
 * inside one of its own functions it returns SPILLWAY_INVALID. */
SPILLWAY_API spillway_status spillway_unregister(spillway_strategy_id id);

/* The plan move that the calling thread's last SPILLWAY_UNWIND chose; where there was none since the last
 * call, another thread's, as an autograd thread's. Taken, with those that the thread's earlier ones chose, so
 * that a second call returns 0. `incident` may be NULL. */
SPILLWAY_API spillway_strategy_id spillway_chosen_move(uint64_t* incident);

/* Movable blocks: memory that the program allows Spillway to move, and with SPILLWAY_NVME to take away, while
 * it is not in use. `address` is the start of a block of Spillway's, `bytes` what is registered of it. A use
 * begins with `touch` and ends with `done`; uses nest, and several threads may have one. What is queued on a
 * stream before `done` may still run after it; what is queued before `touch` or after `done` must not use the
 * block, nor may the host. A freed block is no longer registered. */
SPILLWAY_API spillway_status spillway_block_add(void* address, uint64_t bytes);
/* When it returns SPILLWAY_OK the memory is there, at its address. It may have to be read from the file, and
 * the ladder may make room for it: the call can take as long as an allocation that fails at first, and waits
 * for the device. Otherwise no use has begun, and what lies in the file stays there for a later `touch`:
 * SPILLWAY_OUT_OF_MEMORY, SPILLWAY_FILE_FAILED (unreadable, or not what was written), SPILLWAY_NOT_FOUND,
 * SPILLWAY_DRIVER_FAILED. Not from inside `offer` or `relieve`. */
SPILLWAY_API spillway_status spillway_block_touch(void* address);
SPILLWAY_API spillway_status spillway_block_done(void* address);
/* The block is like any other again. What lies in the file is brought back: the errors are those of `touch`,
 * and the block is registered still. */
SPILLWAY_API spillway_status spillway_block_remove(void* address);
/* Memory that must not move (exported, registered with NCCL or RDMA): counted, undone by as many unpins. A
 * move that is under way is waited for. */
SPILLWAY_API spillway_status spillway_pin(void* address, uint64_t bytes);
SPILLWAY_API spillway_status spillway_unpin(void* address);

/* Tags for the report and the strategies, copied. A phase holds for the calling thread and for threads that
 * have none of their own; NULL takes it back. */
SPILLWAY_API spillway_status spillway_phase(const char* name);
/* A training step for the trace: begin and end with the step's number, the attempt and the plan's hash. After
 * an SPILLWAY_UNWIND the process may use what SPILLWAY_RESERVE keeps until a step begins. */
SPILLWAY_API spillway_status spillway_step_begin(uint64_t step, uint64_t attempt, uint64_t plan_hash);
SPILLWAY_API spillway_status spillway_step_end(uint64_t step, uint64_t tokens);
SPILLWAY_API spillway_status spillway_plan_changed(uint64_t step, uint64_t old_plan, uint64_t new_plan,
                                                   uint64_t incident, const char* reason);

/* The weakest guarantee that the program accepts; the default is SPILLWAY_STATISTICS_CHANGE. */
SPILLWAY_API spillway_status spillway_allow(spillway_guarantee weakest);
/* The bytes that Spillway may use of a device; 0: all that the driver gives. May be lowered below what is
 * live: then idle pages are given back, and requests that need more pages fail until enough is freed. */
SPILLWAY_API spillway_status spillway_limit(int32_t device, uint64_t bytes);

/* limit = live + rounding + stranded + cached + pending + pools + context + others + free, always. `limit` is
 * the whole device where none is set, and what is held while that is more. `context` and `others`: what the
 * limit allows but what was in use at the start, and who else uses the device or is left some of it by
 * SPILLWAY_RESERVE, leave no room for. Of a device that Spillway has not served yet only `limit` and
 * `device_bytes` are known, and all of the limit counts as free: no CUDA context is made to ask. */
typedef struct spillway_memory {
  uint32_t size;
  int32_t device;
  uint64_t limit, live, rounding, stranded, cached, pending, pools, context, others, free;
  uint64_t reserved, peak_live, peak_reserved; /* reserved: physical bytes held; peaks since start or reset */
  uint64_t failures, rescued, unwound, gave_up; /* incidents by outcome */
  uint64_t rescued_bytes, rescue_us;
  uint64_t driver_calls;   /* create, map, access, unmap, release */
  uint64_t peak_allocated; /* of live + rounding */
  uint64_t device_bytes;   /* all that the card has */
  uint64_t spilled;        /* in use, but moved to another tier: in none of the terms */
  uint64_t spilled_peer;   /* of these, on another device */
  uint64_t spilled_nvme;   /* or in a file; the rest in host memory */
} spillway_memory;
SPILLWAY_API spillway_status spillway_query(int32_t device, spillway_memory* out); /* set out->size first */
SPILLWAY_API spillway_status spillway_reset_peaks(int32_t device);

/* What each strategy did since the start. Fills at most `count` entries; `*filled` is how many there are in
 * all. */
typedef struct spillway_strategy_counts {
  uint32_t size;
  uint32_t guarantee;
  char name[40];
  uint64_t tried, useful, bytes, microseconds;
} spillway_strategy_counts;
SPILLWAY_API spillway_status spillway_query_strategies(spillway_strategy_counts* out, size_t count,
                                                       size_t* filled);

/* Path of the trace file, "" if there is none. Valid until the process ends. */
SPILLWAY_API const char* spillway_trace_path(void);
/* What the last failed call of this thread was refused for. Valid until the thread's next call. */
SPILLWAY_API const char* spillway_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
