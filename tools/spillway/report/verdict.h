// Why a request of a trace failed: the allocator's rules on the equation that the trace holds. Of another
// library's call of the driver, and of one that was served, it is told who asked, how much was free and what
// served it.
// Without limit, live and request the verdict is unknown.
#pragma once
#include <string>

#include "allocator/request/verdict.h"
#include "tools/spillway/report/analysis.h"

namespace spillway::tools {

Verdict judge(const Incident& incident);
// Whether a call of the driver failed, and not a request of Spillway's allocator.
bool is_driver_call(const Incident& incident);
// Whether it is a failed request in a history: of a block of Spillway's, and not rescued.
bool is_of_history(const Incident& incident);
// "PyTorch's allocator (libc10_cuda.so)", "libnccl.so.2": who asked, from the file's name.
std::string caller_text(const std::string& library);

}  // namespace spillway::tools
