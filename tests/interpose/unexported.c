// The simulated driver of CUDA 12.8, but cuGetProcAddress finds a function of 13.0 that nothing exports.
// Stands in for the driver by SPILLWAY_DRIVER; everything else is the library's that it links.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <string.h>

static CUresult unexported(CUdevice* device, CUcontext context) {
  *device = context == NULL ? 42 : 43;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (strcmp(symbol, "cuCtxGetDevice") != 0 || version < 13000 || flags != 0) return CUDA_ERROR_NOT_FOUND;
  *found = (void*)&unexported;
  if (status != NULL) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}
