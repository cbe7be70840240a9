// The driver's context of a card, where this is the first use of it: LibTorch sets no device that is chosen
// already. The driver keeps it for the life of the process.
//
// Thread-safety: any thread; it is the caller's that gets the context. Errors: the driver's; without a driver
// there is no access.
#pragma once
#include "driver/table.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

CUresult have_context(const driver::Table& table, at::Device device);

// Each of them has access to the memory of each other one.
bool have_peer_access(const std::vector<at::Device>& devices);

}  // namespace spillway::trainer
