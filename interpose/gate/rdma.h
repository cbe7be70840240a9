// Registrations with RDMA devices by address (libibverbs): what the device writes to must stay where it is.
//
// Thread-safety: any thread. What is registered by a descriptor (ibv_reg_dmabuf_mr) is pinned by the driver's
// call that made the descriptor (pins.h).
#pragma once

namespace spillway::interpose {

// The hook for what a look-up of `name` found, or null. `version`: of dlvsym; null for dlsym.
void* rdma_hook_for(const char* name, const char* version);

}  // namespace spillway::interpose
