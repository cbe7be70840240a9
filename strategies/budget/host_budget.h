// How much pinned host memory the process may take for what is moved off its devices.
//
// Thread-safety: any thread. Errors: what cannot be read counts as absent; 0 where nothing can.
#pragma once
#include <cstdint>

namespace spillway {

// Half of what the machine has available, or of what the process's control group (version 1 or 2) leaves it,
// whichever is less. Several processes of one program share it: `share` of them.
uint64_t default_host_budget_bytes(unsigned share);

}  // namespace spillway
