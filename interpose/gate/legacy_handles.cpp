#include "interpose/gate/legacy_handles.h"

#include <atomic>

#include "interpose/hooks/driver_table.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

// Device memory that could have a handle has one: the driver refuses what is mapped, or comes from a pool.
bool has_no_handle(CUdeviceptr address) {
  unsigned capable = 1;
  return real().cuPointerGetAttribute != nullptr &&
         real().cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) ==
             CUDA_SUCCESS &&
         capable == 0;
}

}  // namespace

void explain_refused_handle(CUdeviceptr address) {
  static std::atomic<bool> said{false};
  if (mode() != Mode::kReplace || !has_no_handle(address) || said.exchange(true)) return;
  say("cuIpcGetMemHandle was refused for memory that is mapped by pages, as Spillway's is: "
      "SPILLWAY_LEGACY_IPC=pools has that of CUDA graphs and MemPools come from allocations that can be "
      "shared so, "
      "all has every tensor's; these are neither stitched nor moved off the card");
}

}  // namespace spillway::interpose
