// A request that was not served, as an exception that LibTorch's own callers understand.
//
// Thread-safety: from any thread. Units: bytes.
#pragma once
#include "strategies/core/core.h"

namespace spillway::libtorch {

// c10::OutOfMemoryError (torch.OutOfMemoryError in Python) if the process has one and memory ran out, a
// std::bad_alloc with the same text if it has none, std::runtime_error for every other status.
[[noreturn]] void throw_failure(spillway_status status, const spillway_failure& failure);

}  // namespace spillway::libtorch
