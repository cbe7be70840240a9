/* The table through which the LibTorch shim and the preloaded library use the one core in a process
 * (libspillway.so). They find the library by its path beside their own, call spillway_core(), and check
 * `version`; no C++ type crosses.
 *
 * Thread-safety: every entry may be called from any thread. Errors: a spillway_status; an allocation failure
 * is a value here and becomes a typed exception at the LibTorch boundary. */
#ifndef SPILLWAY_CORE_H
#define SPILLWAY_CORE_H
#include "allocator/accounting/process_totals.h"
#include "allocator/segments/segment_source.h"
#include "spillway/spillway.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_CORE_VERSION 14u

typedef struct spillway_block_info {
  uint64_t address, bytes, requested_bytes, stream, pool;
  uint32_t state; /* 0 free, 1 live, 2 freed and waiting for events */
  int32_t device;
  /* Of `blocks` and `find_block`: where the allocation begins that it lies in; 0: it lies on pages. */
  uint64_t segment;
} spillway_block_info;

/* Blocks, what they take, and what was asked for. */
typedef struct spillway_sums {
  uint64_t count, bytes, requested_bytes;
} spillway_sums;

/* `active`: live, or freed and waiting for events. Totals since the last reset_totals, peaks since the last
 * spillway_reset_peaks. */
typedef struct spillway_usage_levels {
  spillway_sums live, peak_live, allocated, freed, active, peak_active, deactivated;
} spillway_usage_levels;

/* Blocks of up to 1 MiB are small. */
typedef struct spillway_usage {
  spillway_usage_levels all, small, large;
  uint64_t maps, unmaps; /* ranges of pages, since the last reset_totals */
} spillway_usage;

#define SPILLWAY_EVERY_POOL UINT64_MAX

/* What holds for a private pool. Without flags its pages are its own until it is released. */
enum {
  SPILLWAY_POOL_RELEASED = 1,    /* no graph uses it and nobody allocates from it: idle pages serve others */
  SPILLWAY_POOL_LENDS = 2,       /* free blocks serve default requests that would fail otherwise */
  SPILLWAY_POOL_WHOLE_PAGES = 4, /* its blocks share no page */
  /* Each of its blocks is an allocation of the driver's of its own, as by cuMemAlloc: for
   * cudaIpcGetMemHandle, RDMA, cuMemGetAddressRange. To be set before the pool's first request. */
  SPILLWAY_POOL_SINGLE_HANDLE = 8
};

/* What `watch` tells. Of pages only address, bytes, device, stream and pool are set. */
enum {
  SPILLWAY_CHANGE_ALLOCATED = 0,
  SPILLWAY_CHANGE_FREE_REQUESTED = 1, /* the block still counts as live */
  SPILLWAY_CHANGE_FREED = 2,          /* at once, or when the last stream that used it is past it */
  SPILLWAY_CHANGE_MAPPED = 3,
  SPILLWAY_CHANGE_UNMAPPED = 4
};
/* A page that processes share. `serial`: of its being shared, never the same twice in a process. */
typedef struct spillway_shared_page {
  uint64_t bytes, serial;
  int32_t descriptor;
} spillway_shared_page;

/* The failure behind a SPILLWAY_OUT_OF_MEMORY or SPILLWAY_UNWIND. */
typedef struct spillway_failure {
  uint32_t size;
  int32_t device;
  uint64_t incident, requested_bytes, rounded_bytes, largest_extent_bytes;
  spillway_memory memory;    /* at the moment of failure */
  spillway_strategy_id move; /* SPILLWAY_UNWIND: the chosen plan move */
  char text[512];            /* one line for people: verdict and what was tried */
} spillway_failure;

/* A call of the driver, by whatever library, that failed for want of memory. Set `size`. */
typedef struct spillway_driver_request {
  uint32_t size;
  int32_t device;
  uint64_t bytes;    /* 0: not known */
  const char* call;  /* "cuMemCreate" */
  uint32_t captures; /* of streams, under way in the process */
  /* 1: the driver was not asked, because the call would have passed the process's limit: what other
   * processes give back is of no use. */
  uint32_t over_limit;
} spillway_driver_request;

/* Holds launches, copies, memsets and beginnings of captures of the whole process; the core's own calls do
 * not go through it. Set `size`. */
typedef struct spillway_gate {
  uint32_t size;
  /* 1: none is under way, and none begins until `open`; 0 after `microseconds` without that. */
  int (*close)(uint64_t microseconds);
  void (*open)(void);
  uint32_t (*captures)(void); /* of streams, under way in the process */
  uint64_t (*launches)(void); /* by the calling thread so far; may be null */
  /* Called once, on a thread that allocates, when memory in use may have to move: from then on
   * `mark_progress` is to be called. May be null. */
  void (*begin_marks)(void);
} spillway_gate;

/* The program's stream-ordered memory pools. Set `size`. */
typedef struct spillway_pools {
  uint32_t size;
  int (*used)(void); /* 1: something was allocated from one */
  /* Calls `visit` with each known CUmemoryPool of the device; none is destroyed meanwhile. */
  void (*visit)(int32_t device, void (*visit)(void* context, uint64_t pool), void* context);
} spillway_pools;

typedef struct spillway_core_table {
  uint32_t size, version;

  /* Starts the core: resolves the driver, reads the environment (SPILLWAY_LIMIT, SPILLWAY_TRACE,
   * SPILLWAY_STRATEGIES, ...), opens the trace. Idempotent. */
  spillway_status (*start)(void);
  /* A block of at least `bytes` on `device`, usable at once on `stream`. `bytes` 0 gives a null address. On
   * `pool` 0 is the default pool, any other number a private one. On
   * failure fills `failure` (its size set by the caller; may be NULL). The device's primary context must be
   * current. */
  spillway_status (*allocate)(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes, void** address,
                              spillway_failure* failure);
  /* The block becomes free in the order of its stream, and after the work recorded until now on every other
   * stream that used it. An address that is not a live block of Spillway's: SPILLWAY_NOT_FOUND, and nothing
   * changes. `freed`, unless null, is the block as it was. */
  spillway_status (*free)(void* address, spillway_block_info* freed);
  /* The block is in use on `stream` too. */
  spillway_status (*record_stream)(void* address, uint64_t stream);
  /* The start of the block that holds `address`, its size, and its stream. */
  spillway_status (*find_block)(const void* address, spillway_block_info* out);
  /* Gives idle memory back to the driver, or to a pool's own source, and returns its bytes: of the default
   * pool and of released ones, or of one released `pool`. */
  uint64_t (*empty_cache)(int32_t device, uint64_t pool);
  /* SPILLWAY_POOL_* flags of a private pool; none until they are set. */
  spillway_status (*set_pool)(int32_t device, uint64_t pool, uint32_t flags);
  /* What the program has allocated; all zeros for a device that has not been used. */
  void (*usage)(int32_t device, spillway_usage* out);
  void (*reset_totals)(int32_t device);
  /* Calls `visit` for each block of `device`, by segment and address, on a copy taken at one moment. */
  spillway_status (*blocks)(int32_t device, void (*visit)(void*, const spillway_block_info*), void* context);
  /* Makes every later request fail at the allocator's entry from the n-th on (1 = the next), once or
   * persistently; n = 0: off. Returns how many requests were failed since it was last set. For tests: the OOM
   * sweep. */
  uint64_t (*fail_request)(uint64_t n, int persistent);
  /* Requests seen since the start. */
  uint64_t (*requests)(void);
  /* Checks every invariant; 1 if all hold, else 0 and the first broken one in spillway_last_error(). */
  int (*check_invariants)(void);
  /* As allocate, at an address that lies whole in free bytes that the pool has for the stream; else
   * SPILLWAY_NOT_FOUND, and nothing changes. Never grows the pool. */
  spillway_status (*allocate_at)(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes,
                                 void* address);
  /* As allocate; the block takes at least `padded` bytes, of which what exceeds `bytes` is rounding. */
  spillway_status (*allocate_padded)(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes,
                                     uint64_t padded, void** address, spillway_failure* failure);
  /* Calls `saw` for each change from now on, with one of SPILLWAY_CHANGE_*, on the thread that makes it; for
   * any one address in the order of its changes. It may call usage, blocks and spillway_query; it must not
   * allocate or free, nor wait for a thread that may. null: no more; a call that has begun may end later. */
  void (*watch)(void (*saw)(uint32_t change, const spillway_block_info* block));

  /* For other processes: calls `visit` with each page behind the block that begins at `address`, by address;
   * `offset` is the block's in the first. No page: the block is one allocation of the driver's
   * (cuMemGetAddressRange says which). The descriptors are the core's: each stays open, and its page where it
   * is, until the block is freed. What Spillway moved to another tier comes back first:
   * SPILLWAY_OUT_OF_MEMORY where there is no room for it, SPILLWAY_INVALID where nothing can be moved now. */
  spillway_status (*share)(const void* address, void (*visit)(void*, const spillway_shared_page*),
                           void* context, uint64_t* offset);
  /* A descriptor of its own for who asks, while the page is shared; else -1. */
  int (*shared_descriptor)(uint64_t serial);
  /* Maps pages of another process one after the other; the descriptors stay the caller's. `device`: where
   * they lie. They count in no account of this process. */
  spillway_status (*map_shared)(int32_t device, const spillway_shared_page* pages, uint64_t count,
                                void** address);
  /* Unmaps them as soon as nothing on the device can use them any more. */
  spillway_status (*unmap_shared)(void* address);
  /* Kernels and copies on `peer` may use the memory of `owner`, what is mapped and what will be. */
  spillway_status (*grant)(int32_t owner, int32_t peer);

  /* Makes room for another library's call by the ladder: what caches of the process hold goes back to the
   * driver. `try_again` repeats the call on this thread and returns 1 when it no longer fails for memory. The
   * caller holds no lock that the driver, LibTorch or Spillway may need; where LibTorch's
   * allocator is the caller, a first failure is left to it, which gives its own cache back and asks again;
   * then that cache is left alone, and a rescue that is under way on another thread is not waited for. */
  spillway_status (*rescue)(const spillway_driver_request* request, int (*try_again)(void*), void* context);
  /* Notes that the host refused pinned memory, of which nothing makes more. `is_done_again` 1: the caller
   * does its work again with another plan. `incident`, unless null, is its number. SPILLWAY_OUT_OF_MEMORY: a
   * strategy runs on this thread, and the failure is a part of its incident. */
  spillway_status (*note_host_failure)(const spillway_driver_request* request, int is_done_again,
                                       uint64_t* incident);
  /* LibTorch's own allocator is about to refuse `bytes` on `device`, on this thread. Notes an incident that
   * nothing serves, where none has been told: its own limit (set_per_process_memory_fraction) refused the
   * request and nobody asked the driver, or the driver was asked once and that was left to LibTorch. */
  spillway_status (*note_framework_failure)(int32_t device, uint64_t bytes);
  /* Adds this process's incidents, past and to come, to `totals`, which stays for ever. null: no more. */
  void (*count_incidents)(spillway_incident_totals* totals);
  /* Joins the ledger of this user's processes on this machine: from now on this process gives back what it
   * only caches when another asks, on a thread of the core's, and asks the others when it is short.
   * `captures`: how many streams of the process are being captured. Idempotent. Does not start the core.
   * SPILLWAY_UNAVAILABLE: SPILLWAY_LEDGER is off, or there is no shared memory. */
  spillway_status (*join_ledger)(uint32_t (*captures)(void));

  /* With a gate Spillway may move the memory of live blocks (strategies that need SPILLWAY_NEEDS_GATE). It
   * stays for ever. */
  void (*set_gate)(const spillway_gate* gate);
  /* `call` is called once, on a thread that allocates, when memory becomes short. From then on `touch` helps
   * to choose what to move. */
  void (*on_pressure)(void (*call)(void));
  /* The block that begins at `address` is about to be used by work that this thread queues after the call and
   * that reads `bytes` of it, each as often as it does so; 0: none of them, as who makes a view. Operators
   * call others: of several calls without an allocation, a free or a launch between them that with the most
   * bytes counts. What is no block's beginning is passed over. May move blocks back: the caller holds no lock
   * that a thread which launches may need. */
  void (*touch)(const void* address, uint64_t bytes);

  /* The process's one budget, by SPILLWAY_LIMIT and SPILLWAY_RESERVE; it stays for ever. Does not start the
   * core. Null: a setting is wrong, and spillway_last_error() says which. */
  spillway_budget* (*budget)(void);
  /* 1: LibTorch's CUDA allocator is on the calling thread's stack. Some microseconds. */
  int (*inside_framework)(void);
  /* Tells the core of the program's pools; they stay for ever. Does not start the core. */
  void (*set_pools)(const spillway_pools* pools);
  /* `label` writes what the calling thread is doing, at most `size` bytes with the terminating zero, or an
   * empty text. For the report, of blocks that a thread without a Python stack allocates. It may not allocate
   * on the device. */
  void (*name_work)(void (*label)(char* text, uint64_t size));
  /* An optimizer of the framework begins a step: the report's steps where the program marks none. Nothing
   * without a trace. */
  void (*note_optimizer_step)(const char* name);
  /* `collect` lets go of memory that the framework only keeps for others. It is called before the ladder, on
   * the thread whose request is short, without a lock of Spillway's, and not while that stream is captured.
   * It may free blocks and change limits, and asks for no block. It stays for ever. */
  void (*set_collector)(void (*collect)(int32_t device));
  /* The segments of a private pool come from `source` instead of the driver, cut into blocks as
   * SPILLWAY_POOL_* say. Before the pool's first request, and for good. Their bytes count against the
   * device's limit, and their blocks stay where they are. `source` is copied, and ends in any case: at once
   * where it is not taken (SPILLWAY_INVALID). But for one whose `size` is less than this version's: it is not
   * touched. */
  spillway_status (*set_segment_source)(int32_t device, uint64_t pool, const spillway_segment_source* source);
  /* Now and then, once the gate's `begin_marks` was called: the calling thread has queued work on `stream` of
   * its current context, which nobody can have destroyed yet. Who waits for the queue behind the closed gate
   * sees by such marks that it gets on. Some microseconds. */
  void (*mark_progress)(uint64_t stream);
} spillway_core_table;

SPILLWAY_API const spillway_core_table* spillway_core(void);

#ifdef __cplusplus
}
#endif
#endif
