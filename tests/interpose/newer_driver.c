// The simulated driver, but it says that it is newer than any that this version of Spillway was built with.
// Stands in for the driver by SPILLWAY_DRIVER; everything else is the library's that it links.
#include <cuda.h>

CUresult cuDriverGetVersion(int* version) {
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = 99020;
  return CUDA_SUCCESS;
}
