// The driver, but a thread comes back late from cuMemUnmap: others find the range free long before. Stands in
// for the driver by SPILLWAY_DRIVER; everything else is the library's that it links.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  CUresult (*const unmap)(CUdeviceptr, size_t) =
      driver == NULL ? NULL : (CUresult(*)(CUdeviceptr, size_t))dlsym(driver, "cuMemUnmap");
  if (unmap == NULL) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = unmap(address, bytes);
  usleep(5000);
  return result;
}
