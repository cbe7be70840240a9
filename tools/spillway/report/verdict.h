// Why a request of a trace failed: the allocator's rules on the equation that the trace holds. Another
// library's call of the driver has no equation: who asked, how much was free and what served it is told.
// Without limit, live and request the verdict is unknown.
#pragma once
#include <string>

#include "spillway/allocator/verdict.h"
#include "tools/spillway/report/analysis.h"

namespace spillway::tools {

Verdict judge(const Incident& incident);
// "PyTorch's allocator (libc10_cuda.so)", "libnccl.so.2": who asked, from the file's name.
std::string caller_text(const std::string& library);

}  // namespace spillway::tools
