// The last events of a trace before an incident, folded.
//
// Thread-safety: pure function. Units: bytes, microseconds.
#pragma once
#include "tools/spillway/history/last_events.h"
#include "tools/spillway/report/analysis.h"
#include "trace/reader.h"

namespace spillway::tools {

// Before `incident`; where it is null, before the trace's end. `lines`: the most of them.
LastEvents last_events(const trace::Contents& contents, const Incident* incident, uint64_t lines);

}  // namespace spillway::tools
