// Sharing between processes: the driver's, under the runtime's names.
#include <cstring>

#include "simulator/runtime/driver.h"

using namespace spillway::runtime;

namespace {

// The headers declare the types once for each API.
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

template <class To, class From>
To same_bytes(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return finish(bound_call(&Driver::cuIpcGetMemHandle, reinterpret_cast<CUipcMemHandle*>(handle),
                           reinterpret_cast<CUdeviceptr>(pointer)));
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const cudaError_t error =
      bound_call(&Driver::cuIpcOpenMemHandle, &address, same_bytes<CUipcMemHandle>(handle), flags);
  *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return finish(bound_call(&Driver::cuIpcCloseMemHandle, reinterpret_cast<CUdeviceptr>(pointer)));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return finish(bound_call(&Driver::cuIpcGetEventHandle, reinterpret_cast<CUipcEventHandle*>(handle), event));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return finish(bound_call(&Driver::cuIpcOpenEventHandle, event, same_bytes<CUipcEventHandle>(handle)));
}
}
