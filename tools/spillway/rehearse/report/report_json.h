// A rehearsal for programs: docs/rehearse.md lists the fields.
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/rehearse/judge/explain.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

std::string report_json(const RunOptions& options, const Rehearsal& rehearsal,
                        const Explanation& explanation);

const char* fit_name(
    Fit fit);  // "fits", "does_not_fit", "went_on", "program_failed", "no_device", "no_kernels"

}  // namespace spillway::tools
