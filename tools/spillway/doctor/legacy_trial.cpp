// Handles of cuIpcGetMemHandle, by which older programs share memory between processes.
#include "strategies/core/environment.h"
#include "tools/spillway/doctor/trials.h"

namespace spillway::tools {
namespace {

// Why the device's driver gives no handle of memory of cuMemAlloc; "" if it does.
std::string refusal(const driver::Table& table, int device) {
  constexpr size_t kBytes = 2 << 20;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUipcMemHandle handle;
  CUresult result = table.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return driver::describe(table, result);
  result = table.cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) result = table.cuMemAlloc(&memory, kBytes);
  if (result == CUDA_SUCCESS) result = table.cuIpcGetMemHandle(&handle, memory);
  if (memory != 0) table.cuMemFree(memory);
  table.cuDevicePrimaryCtxRelease(device);
  return result == CUDA_SUCCESS ? "" : driver::describe(table, result);
}

}  // namespace

Trial try_legacy_handles(const driver::Table& table, int count) {
  const std::string name = "legacy handles";
  for (int device = 0; device < count; ++device)
    if (const std::string why = refusal(table, device); !why.empty())
      return {name, TrialState::kLimited, "not on " + std::to_string(device) + ": cuIpcGetMemHandle: " + why,
              "programs that share memory or events by them fail on this machine without Spillway too"};
  const std::string works = "cuIpcGetMemHandle gives one of memory of cuMemAlloc";
  spillway::Environment environment;
  std::string unread;
  read_environment(&environment, &unread);
  if (environment.driver_memory == DriverMemory::kNoPools)
    return {name, TrialState::kOk, works + "; SPILLWAY_LEGACY_IPC has tensors lie in such memory", ""};
  const bool all = environment.driver_memory == DriverMemory::kEveryPool;
  return {name, TrialState::kLimited,
          works + ", in which SPILLWAY_LEGACY_IPC has " +
              (all ? "every tensor" : "the tensors of CUDA graphs and MemPools") +
              " lie: it is neither stitched nor moved off the card",
          "unset it where no program shares tensors by cuIpcGetMemHandle"};
}

}  // namespace spillway::tools
