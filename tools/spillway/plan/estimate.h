// An estimate for people, programs and browsers.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <string>

#include "tools/spillway/plan/workload.h"
#include "trainer/plan/estimate.h"

namespace spillway::tools {

std::string estimate_text(const Workload& workload, const trainer::Estimate& needed);
std::string estimate_json(const Workload& workload, const trainer::Estimate& needed);
std::string estimate_svg(const Workload& workload, const trainer::Estimate& needed);

}  // namespace spillway::tools
