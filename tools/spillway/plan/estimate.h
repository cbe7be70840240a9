// An estimate for people, programs and browsers.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <string>

#include "tools/spillway/plan/workload.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/stages/stage_planner.h"

namespace spillway::tools {

// `staged`: what each stage needs, where ranks are stages; `needed` is then the slowest one's, else `staged`
// has none.
std::string estimate_text(const Workload& workload, const trainer::Estimate& needed,
                          const trainer::StagedPlan& staged);
std::string estimate_json(const Workload& workload, const trainer::Estimate& needed,
                          const trainer::StagedPlan& staged);
std::string estimate_svg(const Workload& workload, const trainer::Estimate& needed);

}  // namespace spillway::tools
