/* What one process takes and has met, as numbers that several libraries in it share: no C++ type, no
 * function.
 *
 * Thread-safety: written and read by atomic operations only (budget.h). Ownership: they stay for the
 * process's life. Units: bytes, microseconds. */
#ifndef SPILLWAY_PROCESS_TOTALS_H
#define SPILLWAY_PROCESS_TOTALS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_MOST_DEVICES 64

/* What the process may take of each device, and takes: by Spillway's allocator and by calls of the driver
 * together. Who takes adds before the driver is asked, and takes it back where that refuses; all with atomic
 * operations (allocator/accounting/process_budget.h). */
typedef struct spillway_budget {
  uint64_t limit_bytes;                         /* of each device; UINT64_MAX: no limit */
  uint64_t reserve_bytes;                       /* of each device, what PyTorch's requests must leave now */
  uint64_t taken_bytes[SPILLWAY_MOST_DEVICES];  /* by both */
  uint64_t native_bytes[SPILLWAY_MOST_DEVICES]; /* of that by calls of the driver, as far as they are seen */
} spillway_budget;

/* Incidents since the start, by outcome; written with atomic additions. */
typedef struct spillway_incident_totals {
  uint64_t failures, rescued, unwound, gave_up, rescued_bytes, rescue_us;
} spillway_incident_totals;

#ifdef __cplusplus
}
#endif
#endif
