// The process's one budget: the limit and the reserve by the environment, and what is taken.
//
// Thread-safety: any thread. Ownership: it stays for ever. Errors: null where a setting is wrong; the
// thread's last error says which.
#pragma once
#include "strategies/core/core.h"

namespace spillway {

spillway_budget* process_budget();
// While the program unwinds after a failure, its requests may use the reserve too: from the failure that
// chose a plan move until the next step begins.
void open_reserve();
void close_reserve();

}  // namespace spillway
