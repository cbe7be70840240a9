// What is known of a pointer.
#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/memory.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

// A pointer into device memory or into host memory that the driver knows.
struct Pointer {
  CUdeviceptr address = 0, base = 0;
  uint64_t bytes = 0;
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  int device = 0;
  const Mapping* mapping = nullptr;
  bool managed = false;
};

bool identify(CUdeviceptr address, Pointer& out) {
  Machine& sim = machine();
  out.address = address;
  if (is_device_address(address)) {
    const auto mapping = sim.space.mapping_of(address);
    if (mapping == sim.space.mappings().end()) return false;
    out.base = mapping->first;
    out.bytes = mapping->second.allocation ? mapping->second.requested_bytes : mapping->second.bytes;
    out.mapping = &mapping->second;
    const Device* device = mapping->second.page->device;
    out.type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    out.device = device ? device->ordinal : 0;
    return true;
  }
  const auto block = sim.host.find(reinterpret_cast<void*>(address));
  if (block == sim.host.blocks().end()) return false;
  out.base = block->first;
  out.bytes = block->second.bytes;
  out.device = block->second.device;
  out.managed = block->second.managed;
  if (out.managed) out.type = CU_MEMORYTYPE_DEVICE;
  return true;
}

template <typename Value>
CUresult store(void* data, Value value) {
  *static_cast<Value*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult attribute_of(const Pointer& pointer, CUpointer_attribute attribute, void* data) {
  const bool device = pointer.mapping != nullptr;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return store(data, reinterpret_cast<CUcontext>(&machine().device(pointer.device)->primary));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return store(data, static_cast<unsigned>(pointer.type));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return store(data, pointer.address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return device && pointer.mapping->host == CU_MEM_ACCESS_FLAGS_PROT_NONE
                 ? CUDA_ERROR_INVALID_VALUE
                 : store(data, reinterpret_cast<void*>(pointer.address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return store(data, 0u);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return store(data, static_cast<unsigned>(pointer.managed));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return store(data, static_cast<unsigned long long>(pointer.base));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return store(data, pointer.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return store(data, static_cast<unsigned>(device && is_legacy_shareable(*pointer.mapping)));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return store(data, pointer.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return store(data, static_cast<size_t>(pointer.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return store(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return store(data, static_cast<unsigned long long>(
                             device ? pointer.mapping->page->properties.requestedHandleTypes : 0));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return store(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return store(data, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return store(data, device && !pointer.mapping->range
                             ? reinterpret_cast<CUmemoryPool>(pointer.mapping->pool)
                             : nullptr);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The value of an attribute for memory that CUDA does not know: nothing.
void store_nothing(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      store(data, 0u);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      store(data, CU_DEVICE_INVALID);
      break;
    default:
      store(data, uint64_t{0});
      break;
  }
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SPILLWAY_SIM_ENTER(cuPointerGetAttribute);
  Pointer pointer;
  if (!data || !identify(ptr, pointer)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(pointer, attribute, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  SPILLWAY_SIM_ENTER(cuPointerGetAttributes);
  if (!attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  Pointer pointer;
  const bool known = identify(ptr, pointer);
  for (unsigned i = 0; i < numAttributes; ++i)
    if (!known || attribute_of(pointer, attributes[i], data[i]) != CUDA_SUCCESS)
      store_nothing(attributes[i], data[i]);
  return CUDA_SUCCESS;
}
