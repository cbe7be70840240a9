// How much memory a call of the driver asks for, and where, by its arguments.
#pragma once
#include "driver/table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

struct Asked {
  uint64_t bytes = 0;  // 0: not known
  int device = -1;     // -1: the current one
  bool on_host = false;
  bool in_pool = false;  // what a pool keeps may serve it
  uint64_t pool = 0;     // which one; 0: the device's current one
};

template <Function function>
struct Asks {
  template <class... Parameters>
  static Asked of(Parameters...) {
    return {};
  }
};

// As drivers align the rows of a pitched allocation.
inline constexpr uint64_t kPitchBytes = 512;

constexpr uint64_t aligned(uint64_t bytes, uint64_t unit) {
  return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

// UINT64_MAX: more than any number.
inline uint64_t product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

constexpr uint64_t element_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;
  }
}

inline uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned channels,
                            CUarray_format format) {
  const uint64_t elements = product(width, product(height == 0 ? 1 : height, depth == 0 ? 1 : depth));
  return product(elements, channels * element_bytes(format));
}

// 0: its memory comes later, by cuMemMapArrayAsync.
inline uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR* made) {
  if (made == nullptr || (made->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  return array_bytes(made->Width, made->Height, made->Depth, made->NumChannels, made->Format);
}

// Each level has half the width, height and depth of the one before.
inline uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR* made, unsigned levels) {
  if (array_bytes(made) == 0) return 0;
  uint64_t sum = 0;
  const bool layered = (made->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  for (unsigned level = 0; level < levels && level < 32; ++level) {
    const uint64_t depth = layered ? made->Depth : made->Depth >> level;
    const uint64_t more = array_bytes(made->Width >> level == 0 ? 1 : made->Width >> level,
                                      made->Height >> level, depth, made->NumChannels, made->Format);
    if (__builtin_add_overflow(sum, more, &sum)) return UINT64_MAX;
  }
  return sum;
}

#define SPILLWAY_ASKS(name, parameters, ...) \
  template <>                                \
  struct Asks<Function::name> {              \
    static Asked of parameters {             \
      return __VA_ARGS__;                    \
    }                                        \
  };

SPILLWAY_ASKS(cuMemAlloc, (CUdeviceptr*, size_t bytes), {.bytes = bytes})
SPILLWAY_ASKS(cuMemAllocPitch, (CUdeviceptr*, size_t*, size_t width, size_t height, unsigned),
              {.bytes = product(aligned(width, kPitchBytes), height)})
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
              made != nullptr && made->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                  ? Asked{.bytes = bytes, .device = made->location.id}
                  : Asked{.bytes = bytes, .on_host = true})
SPILLWAY_ASKS(cuArrayCreate, (CUarray*, const CUDA_ARRAY_DESCRIPTOR* made),
              {.bytes = made == nullptr
                            ? 0
                            : array_bytes(made->Width, made->Height, 1, made->NumChannels, made->Format)})
SPILLWAY_ASKS(cuArray3DCreate, (CUarray*, const CUDA_ARRAY3D_DESCRIPTOR* made), {.bytes = array_bytes(made)})
SPILLWAY_ASKS(cuMipmappedArrayCreate,
              (CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR* made, unsigned levels),
              {.bytes = mipmap_bytes(made, levels)})
#undef SPILLWAY_ASKS

}  // namespace spillway::interpose
