// Device and host memory, pointers and pools.
#include <cstring>

#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"

using namespace spillway::runtime;

namespace {

CUdeviceptr to_driver(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

CUmemLocation to_driver(const cudaMemLocation& location) {
  return {.type = static_cast<CUmemLocationType>(location.type), .id = location.id};
}

template <class Value>
bool pointer_attribute(Value* value, CUpointer_attribute which, const void* pointer) {
  return device_call(&Driver::cuPointerGetAttribute, static_cast<void*>(value), which, to_driver(pointer)) ==
         cudaSuccess;
}

cudaPointerAttributes unregistered(const void* pointer) {
  cudaPointerAttributes attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.type = cudaMemoryTypeUnregistered;
  attributes.device = cudaInvalidDeviceId;
  attributes.hostPointer = const_cast<void*>(pointer);
  return attributes;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return finish(bind_context());
  CUdeviceptr address = 0;
  const cudaError_t error = bound_call(&Driver::cuMemAlloc, &address, bytes);
  if (error == cudaSuccess) *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

// cudaFree(nullptr) is how programs ask for a context.
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return finish(bind_context());
  return finish(bound_call(&Driver::cuMemFree, to_driver(pointer)));
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return finish(bind_context());
  CUdeviceptr address = 0;
  const cudaError_t error = bound_call(&Driver::cuMemAllocAsync, &address, bytes, stream);
  if (error == cudaSuccess) *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (pointer == nullptr) return finish(bind_context());
  return finish(bound_call(&Driver::cuMemFreeAsync, to_driver(pointer), stream));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return finish(bound_call(&Driver::cuMemGetInfo, free, total));
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return finish(bind_context());
  return finish(bound_call(&Driver::cuMemHostAlloc, pointer, bytes, flags));
}

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  if (pointer == nullptr || bytes == 0) return finish(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const cudaError_t error = bound_call(&Driver::cuMemAllocManaged, &address, bytes, flags);
  if (error == cudaSuccess) *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation location,
                                 unsigned int flags, cudaStream_t stream) {
  return finish(
      bound_call(&Driver::cuMemPrefetchAsync, to_driver(pointer), bytes, to_driver(location), flags, stream));
}

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
  return finish(bound_call(&Driver::cuMemAdvise, to_driver(pointer), bytes, static_cast<CUmem_advise>(advice),
                           to_driver(location)));
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return finish(bind_context());
  return finish(bound_call(&Driver::cuMemFreeHost, pointer));
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return finish(bound_call(&Driver::cuMemHostRegister, pointer, bytes, flags));
}

cudaError_t cudaHostUnregister(void* pointer) {
  return finish(bound_call(&Driver::cuMemHostUnregister, pointer));
}

// Memory that CUDA does not know is an answer since CUDA 11, not an error.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return finish(cudaErrorInvalidValue);
  *attributes = unregistered(pointer);
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  CUmemorytype type{};
  if (pointer == nullptr || !pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer))
    return cudaSuccess;
  unsigned managed = 0;
  pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer);
  attributes->type = managed != 0                 ? cudaMemoryTypeManaged
                     : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeDevice;
  if (!pointer_attribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer))
    attributes->device = 0;
  CUdeviceptr address = 0;
  attributes->devicePointer = pointer_attribute(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer)
                                  ? reinterpret_cast<void*>(address)
                                  : nullptr;
  void* host = nullptr;  // none for pages of the host that only devices may use
  attributes->hostPointer =
      pointer_attribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer) ? host : nullptr;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return finish(device_call(&Driver::cuDeviceGetDefaultMemPool, pool, device));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return finish(
      bound_call(&Driver::cuMemPoolGetAttribute, pool, static_cast<CUmemPool_attribute>(which), value));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return finish(
      bound_call(&Driver::cuMemPoolSetAttribute, pool, static_cast<CUmemPool_attribute>(which), value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return finish(
      bound_call(&Driver::cuMemPoolSetAccess, pool, reinterpret_cast<const CUmemAccessDesc*>(access), count));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return finish(bound_call(&Driver::cuMemPoolTrimTo, pool, keep_bytes));
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  if (device == nullptr) return finish(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const cudaError_t error = bound_call(&Driver::cuMemHostGetDevicePointer, &address, host, flags);
  if (error == cudaSuccess) *device = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  return finish(bound_call(&Driver::cuMemHostGetFlags, flags, host));
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  constexpr unsigned kElementBytes = 4;
  CUdeviceptr address = 0;
  const cudaError_t error =
      bound_call(&Driver::cuMemAllocPitch, &address, pitch, width, height, kElementBytes);
  *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (pointer == nullptr) return finish(cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  const cudaError_t error = bound_call(&Driver::cuMemAllocFromPoolAsync, &address, bytes, pool, stream);
  *pointer = reinterpret_cast<void*>(address);
  return finish(error);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return finish(device_call(&Driver::cuDeviceGetMemPool, pool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return finish(device_call(&Driver::cuDeviceSetMemPool, device, pool));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  return finish(
      bound_call(&Driver::cuMemPoolCreate, pool, reinterpret_cast<const CUmemPoolProps*>(properties)));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return finish(bound_call(&Driver::cuMemPoolDestroy, pool));
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
  return finish(bound_call(&Driver::cuMemPoolGetAccess, reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                           reinterpret_cast<CUmemLocation*>(location)));
}
}
