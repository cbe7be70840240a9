// Why a request of a trace failed: the allocator's rules on the equation that the trace holds. Without limit,
// live and request the verdict is unknown.
#pragma once
#include "spillway/allocator/verdict.h"
#include "tools/spillway/report/analysis.h"

namespace spillway::tools {

Verdict judge(const Incident& incident);

}  // namespace spillway::tools
