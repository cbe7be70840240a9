#include "static_runtime.h"

#include <cuda.h>
#include <dlfcn.h>

void* static_runtime_find(const char* name, int cuda_version, bool per_thread_stream, bool with_status) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  const cuuint64_t flags =
      per_thread_stream ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
  void* found = nullptr;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (with_status) {
    using Find = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    CUdriverProcAddressQueryResult status;
    result = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"))(name, &found, cuda_version, flags,
                                                                           &status);
  } else {
    using Find = CUresult (*)(const char*, void**, int, cuuint64_t);
    result = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress"))(name, &found, cuda_version, flags);
  }
  return result == CUDA_SUCCESS ? found : nullptr;
}
