/* Where the segments of a pool come from, if not from the driver: functions of the pool's owner, behind the
 * C table between the core and the shim.
 *
 * Thread-safety: every function may be called from any thread, and is called without a lock of Spillway's, in
 * the device's context: it may take locks of its own, and call Spillway, but ask for no block of this pool.
 * Ownership: a segment is the source's, and in use until it is given to `free`. Errors: values; no exception
 * leaves a function. Units: bytes. */
#ifndef SPILLWAY_SEGMENT_SOURCE_H
#define SPILLWAY_SEGMENT_SOURCE_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  SPILLWAY_SEGMENT_MADE = 0,
  SPILLWAY_SEGMENT_REFUSED = 1, /* it has no memory: the request waits for some, or is out of memory */
  SPILLWAY_SEGMENT_FAILED = 2   /* for another reason: the request ends at once */
};

typedef struct spillway_segment_source {
  uint32_t size; /* of this struct */
  void* context;
  /* How large a segment it is asked for, so that a request of so many bytes fits. Takes no lock that a thread
   * with a waiting request may hold: this alone is also called while a handler runs. */
  uint64_t (*segment_bytes)(void* context, uint64_t bytes);
  /* One of SPILLWAY_SEGMENT_*. Where the address is no multiple of 512, blocks begin at the next one; where
   * the request does not fit then, the segment goes back, and one of 512 bytes more is asked for. An address
   * from 2^47 on, or of memory that is in use, goes back too, and the request ends with an error that says
   * so. */
  uint32_t (*allocate)(void* context, uint64_t bytes, uint64_t* address);
  /* Nothing on the device uses the segment any more. */
  void (*free)(void* context, uint64_t address, uint64_t bytes);
  /* The last call: the pool is released, and no segment is left. */
  void (*end)(void* context);
} spillway_segment_source;

#ifdef __cplusplus
}
#endif
#endif
