/* What the core is told of the program's streams. The driver takes a stream for a pointer, and asking it
 * about one that was destroyed is the end of the process.
 *
 * Thread-safety: any thread. */
#ifndef SPILLWAY_STREAMS_STREAMS_H
#define SPILLWAY_STREAMS_STREAMS_H
#include <stdint.h>

#include "spillway/spillway.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the preloaded library, which sees all streams end; the core finds it by this name when it starts.
 * `ended` is called before a stream is destroyed. Returns what counts the streams that are being captured. */
typedef uint32_t (*spillway_capture_count)(void);
SPILLWAY_API spillway_capture_count spillway_follow_streams(void (*ended)(uint64_t stream));

/* Of the core, for the LibTorch shim: `lasts` says whether a stream, on which the calling thread allocates,
 * is one that is never destroyed. Not asked where the preloaded library follows all streams. */
SPILLWAY_API void spillway_set_lasting_streams(int (*lasts)(uint64_t stream));

#ifdef __cplusplus
}
#endif
#endif
