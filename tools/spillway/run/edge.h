// How close a run came to what its devices can give, and whether that is closer than last time.
//
// Thread-safety: pure functions of their arguments and files. Errors: a trace that cannot be read tells
// nothing. Units: bytes.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/report/analysis.h"
#include "tools/spillway/run/earlier_runs.h"
#include "tools/spillway/run/summary.h"

namespace spillway::tools {

// Of the processes the one that came closest, or went farthest beyond. `slowdown`: of the slowest.
RunRecord measure_run(const RunTotals& totals, StepSlowdown* slowdown);

// "" for a run that needed no rescue, or was not saved.
std::string edge_line(const RunTotals& totals, const RunRecord& now, const std::optional<RunRecord>& before);

}  // namespace spillway::tools
