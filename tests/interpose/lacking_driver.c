// A driver that has next to nothing, of the version of CUDA that LACKING_VERSION names.
#include <cuda.h>
#include <stdlib.h>

CUresult cuInit(unsigned flags) {
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int* version) {
  const char* named = getenv("LACKING_VERSION");
  if (version == NULL || named == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = atoi(named);
  return CUDA_SUCCESS;
}
