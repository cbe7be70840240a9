// How much memory a call of the driver asks for, and where: read from its arguments when it has failed.
#pragma once
#include "interpose/functions.h"
#include "spillway/driver/table.h"

namespace spillway::interpose {

struct Asked {
  uint64_t bytes = 0;  // 0: not known
  int device = -1;     // -1: the current one
  bool on_host = false;
};

template <Function function>
struct Asks {
  template <class... Parameters>
  static Asked of(Parameters...) {
    return {};
  }
};

#define SPILLWAY_ASKS(name, parameters, ...) \
  template <>                                \
  struct Asks<Function::name> {              \
    static Asked of parameters {             \
      return __VA_ARGS__;                    \
    }                                        \
  };

SPILLWAY_ASKS(cuMemAlloc, (CUdeviceptr*, size_t bytes), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocPitch, (CUdeviceptr*, size_t*, size_t width, size_t height, unsigned),
              {.bytes = width * height})
SPILLWAY_ASKS(cuMemAllocManaged, (CUdeviceptr*, size_t bytes, unsigned), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocAsync, (CUdeviceptr*, size_t bytes, CUstream), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocAsync_ptsz, (CUdeviceptr*, size_t bytes, CUstream), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocFromPoolAsync, (CUdeviceptr*, size_t bytes, CUmemoryPool, CUstream), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr*, size_t bytes, CUmemoryPool, CUstream),
              {.bytes = bytes})
SPILLWAY_ASKS(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice device), {.device = device})
SPILLWAY_ASKS(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice device), {.device = device})
SPILLWAY_ASKS(cuCtxCreate_v3, (CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice device),
              {.device = device})
SPILLWAY_ASKS(cuCtxCreate_v4, (CUcontext*, CUctxCreateParams*, unsigned, CUdevice device), {.device = device})
SPILLWAY_ASKS(cuMemHostAlloc, (void**, size_t bytes, unsigned), {.bytes = bytes, .on_host = true})
SPILLWAY_ASKS(cuMemAllocHost, (void**, size_t bytes), {.bytes = bytes, .on_host = true})
SPILLWAY_ASKS(cuMemHostRegister, (void*, size_t bytes, unsigned), {.bytes = bytes, .on_host = true})
SPILLWAY_ASKS(cuMemCreate,
              (CUmemGenericAllocationHandle*, size_t bytes, const CUmemAllocationProp* made,
               unsigned long long),
              made->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                  ? Asked{.bytes = bytes, .device = made->location.id}
                  : Asked{.bytes = bytes, .on_host = true})
#undef SPILLWAY_ASKS

}  // namespace spillway::interpose
