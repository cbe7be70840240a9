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

}  // namespace spillway::trainer
