#include "simulator/runtime/memory/copy.h"

#include <cstring>

#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"

namespace spillway::runtime {
namespace {

CUdeviceptr to_driver(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

bool on_device(const void* pointer) {
  CUmemorytype type{};
  return device_call(&Driver::cuPointerGetAttribute, static_cast<void*>(&type),
                     CU_POINTER_ATTRIBUTE_MEMORY_TYPE, to_driver(pointer)) == cudaSuccess &&
         type == CU_MEMORYTYPE_DEVICE;
}

// cudaMemcpyDefault: unified addressing tells where a pointer lies.
cudaMemcpyKind resolve(const void* to, const void* from, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyDefault) return kind;
  if (on_device(to)) return on_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

cudaError_t copy_and_wait(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return bound_call(&Driver::cuMemcpyHtoD, to_driver(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return bound_call(&Driver::cuMemcpyDtoH, to, to_driver(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return bound_call(&Driver::cuMemcpyDtoD, to_driver(to), to_driver(from), bytes);
    case cudaMemcpyHostToHost:
      return bound_call(&Driver::cuMemcpy, to_driver(to), to_driver(from), bytes);
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

cudaError_t copy_on_stream(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                           cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return bound_call(&Driver::cuMemcpyHtoDAsync, to_driver(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return bound_call(&Driver::cuMemcpyDtoHAsync, to, to_driver(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return bound_call(&Driver::cuMemcpyDtoDAsync, to_driver(to), to_driver(from), bytes, stream);
    case cudaMemcpyHostToHost:
      return bound_call(&Driver::cuMemcpyAsync, to_driver(to), to_driver(from), bytes, stream);
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

CUDA_MEMCPY2D describe_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                            size_t height, cudaMemcpyKind kind) {
  CUDA_MEMCPY2D rows;
  std::memset(&rows, 0, sizeof rows);
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  rows.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  rows.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  rows.srcHost = from_device ? nullptr : from;
  rows.srcDevice = from_device ? to_driver(from) : 0;
  rows.dstHost = to_device ? nullptr : to;
  rows.dstDevice = to_device ? to_driver(to) : 0;
  rows.srcPitch = from_pitch;
  rows.dstPitch = to_pitch;
  rows.WidthInBytes = width;
  rows.Height = height;
  return rows;
}

// Checks a copy by rows; one of nothing has no rows.
cudaError_t read_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaMemcpyKind kind, CUDA_MEMCPY2D* rows) {
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  *rows =
      describe_rows(to, to_pitch, from, from_pitch, width, width == 0 ? 0 : height, resolve(to, from, kind));
  return cudaSuccess;
}

}  // namespace

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool wait) {
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  kind = resolve(to, from, kind);
  return wait ? copy_and_wait(to, from, bytes, kind) : copy_on_stream(to, from, bytes, kind, stream);
}

}  // namespace spillway::runtime

using namespace spillway::runtime;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return finish(copy(to, from, bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return finish(copy(to, from, bytes, kind, stream, false));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  if (cudaError_t error = primary_context(to_device, &to_context); error != cudaSuccess) return finish(error);
  if (cudaError_t error = primary_context(from_device, &from_context); error != cudaSuccess)
    return finish(error);
  return finish(bound_call(&Driver::cuMemcpyPeerAsync, to_driver(to), to_context, to_driver(from),
                           from_context, bytes, stream));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  CUDA_MEMCPY2D rows;
  const cudaError_t error = read_rows(to, to_pitch, from, from_pitch, width, height, kind, &rows);
  if (error != cudaSuccess || rows.Height == 0) return finish(error);
  return finish(bound_call(&Driver::cuMemcpy2DAsync, static_cast<const CUDA_MEMCPY2D*>(&rows), stream));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (bytes == 0) return finish(bind_context());
  return finish(bound_call(&Driver::cuMemsetD8, to_driver(to), static_cast<unsigned char>(value), bytes));
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return finish(bind_context());
  return finish(
      bound_call(&Driver::cuMemsetD8Async, to_driver(to), static_cast<unsigned char>(value), bytes, stream));
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return finish(bound_call(&Driver::cuMemsetD2D8, to_driver(to), pitch, static_cast<unsigned char>(value),
                           width, height));
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return finish(bound_call(&Driver::cuMemsetD2D8Async, to_driver(to), pitch,
                           static_cast<unsigned char>(value), width, height, stream));
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  CUDA_MEMCPY2D rows;
  const cudaError_t error = read_rows(to, to_pitch, from, from_pitch, width, height, kind, &rows);
  if (error != cudaSuccess || rows.Height == 0) return finish(error);
  return finish(bound_call(&Driver::cuMemcpy2D, static_cast<const CUDA_MEMCPY2D*>(&rows)));
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  if (cudaError_t error = primary_context(to_device, &to_context); error != cudaSuccess) return finish(error);
  if (cudaError_t error = primary_context(from_device, &from_context); error != cudaSuccess)
    return finish(error);
  return finish(
      bound_call(&Driver::cuMemcpyPeer, to_driver(to), to_context, to_driver(from), from_context, bytes));
}

// The copies of a batch may come in any order: theirs is one. The attributes are hints.
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                 cudaMemcpyAttributes*, size_t*, size_t, cudaStream_t stream) {
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0 || stream == nullptr)
    return finish(cudaErrorInvalidValue);
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t error = copy(to[i], from[i], bytes[i], cudaMemcpyDefault, stream, false);
    if (error != cudaSuccess) return finish(error);
  }
  return cudaSuccess;
}
}
