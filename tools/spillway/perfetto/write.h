// A history of memory as a trace in Perfetto's form, for its viewer and its trace processor.
//
// For each device, in this order:
//  - counters in bytes: "in use", "reserved", "pending", "idle". Of a long history not every event is a point
//    of them: the highest points are, and the failures.
//  - "steps": a slice for each of the program's.
//  - "failures": an instant for each of the last 2,000 requests that were not served.
//  - "ladder", of a Spillway trace: a slice for each incident, and on it one for each strategy that was
//  tried.
//  - "blocks": a slice for each block that is drawn, from its allocation to its free, named after its place.
//    The largest are drawn, 20,000 at most, and 256 at the same time.
//
// Thread-safety: pure function. Ownership: plain values. Errors: none; what the file lacks stands on the
// device's track. Units: bytes.
#pragma once
#include <string>

#include "tools/spillway/history/history.h"
#include "tools/spillway/report/analysis.h"

namespace spillway::tools {

struct PerfettoTrace {
  std::string bytes;
  uint64_t blocks = 0, blocks_drawn = 0;
};

// `ladder`: what a trace of Spillway's tells besides; null of another file.
PerfettoTrace perfetto_of(const MemoryHistory& history, const Analysis* ladder);

}  // namespace spillway::tools
