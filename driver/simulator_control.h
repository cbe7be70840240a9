/* The control interface of the simulated driver: what a test, the CPU kernels and the report ask of the
 * simulator beyond CUDA. Found with dlsym(handle of libcuda.so.1, "spillway_simulator_control"); a real
 * driver has no such symbol, and that is how a program tells the two apart.
 *
 * Thread-safety: every function may be called from any thread. Ownership: nothing is handed over; strings
 * live until the next call from the same thread. Errors: CUresult as the driver's. Units: bytes; virtual
 * nanoseconds. */
#ifndef SPILLWAY_DRIVER_SIMULATOR_CONTROL_H
#define SPILLWAY_DRIVER_SIMULATOR_CONTROL_H
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_SIMULATOR_CONTROL_VERSION 9u

enum { SPILLWAY_SIMULATOR_NULL = 0, SPILLWAY_SIMULATOR_COMPUTE = 1 };

/* For `answer_next_read`. */
enum { SPILLWAY_SIMULATOR_AT_MOST = 2 };

/* Of `operators_take_time`. */
enum { SPILLWAY_SIMULATOR_TIMED = 2 };

/* Bytes that a piece of work reads or writes. */
typedef struct SpillwayRange {
  CUdeviceptr address;
  uint64_t bytes;
  uint32_t writes; /* 0: reads only */
  /* Since version 9, of a factor of a matrix product: the rows of the result that a left one has, or the
   * columns that a right one has; and the others, for each tile of which it is read again. 0: no factor. */
#ifdef __cplusplus
  uint32_t own = 0, other = 0;
#else
  uint32_t own, other;
#endif
} SpillwayRange;

/* What the referee found and what the fault plan did, since the start or the last `reset`. */
typedef struct SpillwaySimulatorCounts {
  uint64_t driver_calls;      /* calls that may fail, the unit of `fail_call` */
  uint64_t injected_failures; /* faults that really fired */
  uint64_t violations;       /* referee reports: touched while unmapped or freed, no access, double release */
  uint64_t live_pages_bytes; /* physical bytes charged now, all devices */
  uint64_t peak_pages_bytes;
  uint64_t launches, copies, copied_bytes;
  uint64_t virtual_ns;      /* the virtual clock */
  uint64_t driver_stall_ns; /* injected latencies, added up */
} SpillwaySimulatorCounts;

/* Modelled memory of one kind on one device: "context", "cublas", "nccl", ... */
typedef struct SpillwayModelledPart {
  char label[48];
  uint64_t bytes;         /* now */
  uint64_t at_peak_bytes; /* when the device's charge was at its peak */
} SpillwayModelledPart;

enum { SPILLWAY_SIMULATOR_MAX_PARTS = 64 };

/* A copy to the host of at most so many bytes may be of values that the program decides by; more is data. */
enum { SPILLWAY_SIMULATOR_SMALL_READ = 1 << 20 };

/* What is charged against one device: pages and modelled parts. */
typedef struct SpillwaySimulatorUsage {
  uint64_t capacity_bytes;
  uint64_t charged_bytes;    /* now, modelled parts included */
  uint64_t peak_bytes;       /* the most that was charged at once */
  uint64_t others_bytes;     /* charged by other processes of the machine, if processes share one */
  uint64_t modelled_bytes;   /* now: the sum of the parts */
  uint64_t refused_requests; /* for which the card had no room */
  uint32_t physical;         /* the device's place in the machine, whatever CUDA_VISIBLE_DEVICES made of it */
  uint32_t active_contexts;
  uint32_t part_count;
  SpillwayModelledPart parts[SPILLWAY_SIMULATOR_MAX_PARTS]; /* by label; parts that hold nothing now stay */
} SpillwaySimulatorUsage;

typedef enum SpillwayExternalState {
  SPILLWAY_EXTERNAL_PENDING = 0,
  SPILLWAY_EXTERNAL_ENDED = 1,
  SPILLWAY_EXTERNAL_FAILED = 2 /* it will never end */
} SpillwayExternalState;

/* Work whose end others decide, such as a collective that other processes have to join. */
typedef struct SpillwayExternalWork {
  uint32_t size; /* sizeof of this struct */
  uint32_t range_count;
  const char* name; /* copied */
  const SpillwayRange* ranges;
  uint64_t duration_ns;
  /* Called once, by the submitting thread, as soon as the work has its place; may be NULL. In computing mode
   * what the stream's earlier work has written is there. */
  void (*begin)(void* argument);
  /* Waits at most `timeout_ms` (0: only looks; negative: as long as it takes) and does what is left to do
   * when the others have come. Called from any thread, from several at once, and never while the driver holds
   * a lock; it must not call the driver. */
  SpillwayExternalState (*wait)(void* argument, int64_t timeout_ms);
  /* Nothing is called afterwards; may be NULL. Called from any thread, and without a lock of the driver: it
   * may call that. */
  void (*release)(void* argument);
  void* argument;
} SpillwayExternalWork;

/* Told of a copy from a device to the host: on the thread that asked for it, or for the graph that makes it,
 * when the bytes are there and that call ends, without any lock of the simulator's, so that it may use CUDA.
 */
typedef void (*SpillwayReadObserver)(void* argument, CUdeviceptr source, uint64_t bytes);

/* One card of the machine, hidden by CUDA_VISIBLE_DEVICES or not. */
typedef struct SpillwaySimulatorCard {
  char name[96];
  char uuid[48];              /* "GPU-..." */
  uint64_t capacity_bytes;    /* as configured; set_capacity does not change it */
  uint64_t framebuffer_bytes; /* capacity and what the driver keeps for itself: NVML's total */
  int32_t major, minor, multiprocessors;
  int32_t clock_khz, memory_clock_khz, memory_bus_bits;
  int32_t pci_bus, pcie_generation;
  int32_t ecc;
} SpillwaySimulatorCard;

/* What one process holds of a card. */
typedef struct SpillwaySimulatorProcess {
  uint64_t id;
  uint64_t charged_bytes;
} SpillwaySimulatorProcess;

typedef struct SpillwaySimulatorControl {
  uint32_t size;    /* sizeof of this struct as the simulator was built */
  uint32_t version; /* SPILLWAY_SIMULATOR_CONTROL_VERSION */

  /* SPILLWAY_SIMULATOR_NULL or _COMPUTE. */
  int (*mode)(void);
  /* Add to a device address to get the address at which the host may read and write it (computing mode). The
   * device address itself is never accessible, so that a stray host access faults. 0 in null mode: there are
   * no bytes. */
  ptrdiff_t (*alias_offset)(void);

  /* Runs `work(argument)` as a kernel on `stream`: now, in submission order, and on the virtual clock from
   * when the stream is free for `duration_ns`. The ranges are checked now and stay in use until the virtual
   * end: unmapping or freeing them earlier is a violation. `name` is copied. `work` may be NULL. */
  CUresult (*submit)(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                     uint64_t duration_ns, void (*work)(void*), void* argument);

  /* Fault injection. fail_call: the n-th driver call from now (1 = the next) that may return `code` returns
   * it, and if `persistent` every later one too; n = 0 switches it off. `name` restricts it to one function
   * (NULL: any that allocates or maps). fail_seeded: each such call fails with `probability`, from `seed`. */
  void (*fail_call)(uint64_t n, const char* name, int persistent, CUresult code);
  void (*fail_seeded)(uint64_t seed, double probability, CUresult code);
  /* Virtual nanoseconds that each call of the named function costs; returns CUDA_ERROR_NOT_FOUND for a name
   * that the simulator does not implement. */
  CUresult (*set_latency)(const char* name, uint64_t ns);
  CUresult (*set_capacity)(int device, uint64_t bytes);

  void (*counts)(SpillwaySimulatorCounts* out);
  /* The referee's reports since the start, one a line, each with both call sites; "" if there are none.
   * Copies at most `size` bytes including the terminating 0 and returns the length of the whole text. */
  size_t (*violations)(char* out, size_t size);
  /* Pages, reservations, streams and events that the program has not given back: the text as above. */
  size_t (*leaks)(char* out, size_t size);
  /* Forgets violations and counters and switches injection off; what is allocated stays. */
  void (*reset)(void);

  /* Since version 2. Memory that a real library or the driver takes for itself and that the simulator only
   * models: `charge` counts `bytes` under `label` (1 to 47 bytes, and at most SPILLWAY_SIMULATOR_MAX_PARTS
   * labels a device; otherwise CUDA_ERROR_INVALID_VALUE) against the card, as pages do, or gives
   * CUDA_ERROR_OUT_OF_MEMORY and changes nothing; `discharge` takes bytes of a label back,
   * CUDA_ERROR_INVALID_VALUE when it holds fewer. Before cuInit: CUDA_ERROR_NOT_INITIALIZED. */
  CUresult (*charge)(int device, const char* label, uint64_t bytes);
  CUresult (*discharge)(int device, const char* label, uint64_t bytes);
  /* Since version 3. The next page that this thread makes by cuMemCreate counts as `bytes` under `label`, as
   * `charge` would count them, instead of as a page of its size, for as long as it lives, and is no leak. It
   * stands for memory that a library takes by driver calls of its own, which whoever watches the driver sees.
   * A creation that fails leaves the label for the next try; label NULL: none any more. The text is copied.
   */
  CUresult (*label_page)(const char* label, uint64_t bytes);
  CUresult (*usage)(int device, SpillwaySimulatorUsage* out);
  /* Writes the report of SPILLWAY_SIM_REPORT now (simulator/README.md has its form); without that setting
   * nothing is written. CUDA_ERROR_FILE_NOT_FOUND when it cannot be. */
  CUresult (*write_report)(void);

  /* Since version 2. `submit` for work whose end others decide. On the virtual clock it takes `duration_ns`;
   * each wait of the host that covers it, and in computing mode all work behind it that touches bytes, also
   * waits for it with `wait`. Work that fails makes such waits return CUDA_ERROR_LAUNCH_FAILED. After an
   * error of this function nothing of `work` is ever called. */
  CUresult (*submit_external)(CUstream stream, const SpillwayExternalWork* work);
  /* Since version 2, in null mode. Small copies from the host to a device and memsets (at most 1 MiB each)
   * are known until a kernel runs there, and so is what is copied from them; all else reads as zeros. `ask`
   * gives bytes that are known, and 1, or 0; `tell` makes bytes known that come from outside, at most 32 MiB
   * at once, or with NULL unknown. */
  int (*ask)(CUdeviceptr address, void* out, uint64_t bytes);
  void (*tell)(CUdeviceptr address, const void* bytes, uint64_t count);

  /* Since version 2. What the simulator's table (simulator/cards/overheads.inc) says that a row such as
   * "cudnn.handle" takes on this device's card, to be charged by whoever stands in for it; without modelled
   * overheads, as without a card, 0 for all that is not documented; 0 for a row that the table lacks, which
   * is said on stderr. */
  uint64_t (*overhead)(int device, const char* row);

  /* Since version 2. NULL: nobody is told any more; a call that is running still ends. */
  void (*observe_host_reads)(SpillwayReadObserver observer, void* argument);

  /* Since version 2. The card at a place of the machine, as NVML sees it: before cuInit too, when the
   * configuration says, and in a forked child. CUDA_ERROR_INVALID_DEVICE behind the last one,
   * CUDA_ERROR_INVALID_VALUE (and a line on stderr) when the configuration is wrong. */
  CUresult (*card)(int physical, SpillwaySimulatorCard* out);
  /* The living processes of the machine that hold something of the card, or have a context on it in the case
   * of this one; before cuInit too. Fills at most `size` of `out` and returns how many there are. */
  size_t (*processes)(int physical, SpillwaySimulatorProcess* out, size_t size);

  /* Since version 2. In computing mode a kernel that nothing computes is named on stderr, but not one that
   * the calling thread launches between `stand_in(1)` and `stand_in(-1)`: the caller computes in its place.
   * Returns how many of these are open; 0 only asks. */
  int (*stand_in)(int change);
  /* Since version 2. How often the named function was called since cuInit or the last `reset`, whether or not
   * the call succeeded; 0 for a name that the simulator does not implement. */
  uint64_t (*calls)(const char* name);
  /* Since version 3. A function by that name without a module, for the runtime, whose kernels are registered
   * and not loaded: cuLaunchKernel takes it. The same name gives the same function. The text is copied. */
  CUfunction (*function)(const char* name);
  /* Since version 4. `ask`, after work from outside that writes these bytes, for which it waits a while. Not
   * for such work itself. */
  int (*await_and_ask)(CUdeviceptr address, void* out, uint64_t bytes);
  /* Since version 4, in null mode. Whether pinned memory of the host still holds what a copy of unknown
   * bytes, of a page or more, has left there. */
  int (*holds_unknown)(const void* host, uint64_t bytes);
  /* Since version 4, in null mode. Between `confine(1)` and `confine(-1)` the kernels that the calling thread
   * launches make nothing unknown: the caller says what they wrote, by `tell`. Returns how many of these are
   * open; 0 only asks. */
  int (*confine)(int change);
  /* Since version 4. How many kernels the calling thread has submitted, captured ones included. */
  uint64_t (*submitted)(void);
  /* Since version 4, in null mode. The calling thread's next copy of at most 8 bytes to the host gives the
   * first bytes of `value`, whatever it reads; `known` 0: what is there. SPILLWAY_SIMULATOR_AT_MOST, since
   * version 6: nobody knows it, and `value` is the most that it can be; it is given unless SPILLWAY_SIM_MASKS
   * is none, and the report counts it. */
  void (*answer_next_read)(int known, uint64_t value);
  /* Since version 5. Whether the stream adds to a graph; NULL: whether any stream does, in constant time. */
  int (*capturing)(CUstream stream);
  /* Since version 5, in computing mode. `submit` on a stream that captures: the graph calls `work(argument)`
   * at each of its launches, on the thread that launches and without a lock of the driver's; 0 is success,
   * all else fails the launch. `release` is called when no graph has it any more, and must not call the
   * driver. After an error neither is ever called. */
  CUresult (*capture)(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                      uint64_t duration_ns, int (*work)(void*), void (*release)(void*), void* argument);
  /* Since version 5, in computing mode. Whoever computes ahead what a capture only keeps says here what he is
   * about to write: the bytes are as now when the capture has ended. */
  CUresult (*preserve)(CUstream stream, const SpillwayRange* ranges, size_t count);
  /* Since version 7. Whether `operate` would count anything: SPILLWAY_SIMULATOR_TIMED, operators take time by
   * the configuration's [kernels]; 1, a device uses memory that is not its own; else 0. In constant time. */
  int (*operators_take_time)(void);
  /* Since version 8, in null mode, where launches do not say what they touch. The kernels of an operator that
   * this thread has launched on `stream` touch these ranges, on the stream's device. They read and write
   * `bytes` there, fewer than the ranges have where rows lie apart, and do so many floating-point operations:
   * `stream` takes the time of that by [kernels], and of the links behind which the ranges lie. Nothing is
   * checked, and nothing happens while the stream is captured. */
  CUresult (*operate)(CUstream stream, const SpillwayRange* ranges, size_t count, uint64_t bytes,
                      double operations);
} SpillwaySimulatorControl;

typedef const SpillwaySimulatorControl* (*SpillwaySimulatorControlFunction)(void);
/* Exported by the simulated libcuda.so.1. */
const SpillwaySimulatorControl* spillway_simulator_control(void);

#ifdef __cplusplus
}
#endif
#endif
