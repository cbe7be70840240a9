#include "trainer/runtime/device_context.h"

namespace spillway::trainer {

CUresult have_context(const driver::Table& table, at::Device device) {
  CUcontext context = nullptr;
  CUdevice card = 0;
  CUresult result = table.cuCtxGetCurrent(&context);
  if (result == CUDA_SUCCESS && context != nullptr) return result;
  if (result == CUDA_SUCCESS) result = table.cuDeviceGet(&card, device.index());
  if (result == CUDA_SUCCESS) result = table.cuDevicePrimaryCtxRetain(&context, card);
  return result == CUDA_SUCCESS ? table.cuCtxSetCurrent(context) : result;
}

bool have_peer_access(const std::vector<at::Device>& devices) {
  driver::LoadError error;
  const driver::Table* table = driver::process_table(&error);
  if (table == nullptr) return false;
  for (const at::Device one : devices)
    for (const at::Device other : devices) {
      int access = 0;
      if (one == other) continue;
      if (table->cuDeviceCanAccessPeer(&access, one.index(), other.index()) != CUDA_SUCCESS || access == 0)
        return false;
    }
  return true;
}

}  // namespace spillway::trainer
