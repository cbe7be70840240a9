// An estimate for people, programs and browsers.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <string>

#include "spillway/trainer/plan/estimate.h"
#include "tools/spillway/plan/workload.h"

namespace spillway::tools {

std::string estimate_text(const Workload& workload, const trainer::Estimate& needed);
std::string estimate_json(const Workload& workload, const trainer::Estimate& needed);
std::string estimate_svg(const Workload& workload, const trainer::Estimate& needed);

}  // namespace spillway::tools
