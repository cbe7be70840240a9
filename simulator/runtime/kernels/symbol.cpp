// Device variables: each gets real simulated memory on a device when somebody first asks where it lies there.
#include <map>
#include <utility>

#include "base/mutex.h"
#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"
#include "simulator/runtime/kernels/registry.h"
#include "simulator/runtime/memory/copy.h"

using namespace spillway::runtime;

namespace {

// The address of each variable on each device that has been asked for; never destroyed, as the registry.
struct Places {
  spillway::Mutex<spillway::LockOrder::kLeaf> mutex;
  std::map<std::pair<const void*, int>, CUdeviceptr> addresses SPILLWAY_GUARDED_BY(mutex);
};
Places& places() {
  static auto* const instance = new Places;
  return *instance;
}

CUdeviceptr known_place(const void* symbol, int device) {
  Places& all = places();
  const spillway::Locked lock(all.mutex);
  auto found = all.addresses.find({symbol, device});
  return found == all.addresses.end() ? 0 : found->second;
}

// Where it lies: another thread may have been faster.
CUdeviceptr remember_place(const void* symbol, int device, CUdeviceptr allocated) {
  Places& all = places();
  const spillway::Locked lock(all.mutex);
  return all.addresses.try_emplace({symbol, device}, allocated).first->second;
}

cudaError_t allocate_zeroed(size_t bytes, CUdeviceptr* address) {
  if (cudaError_t error = bound_call(&Driver::cuMemAlloc, address, bytes); error != cudaSuccess) return error;
  const cudaError_t error = bound_call(&Driver::cuMemsetD8, *address, static_cast<unsigned char>(0), bytes);
  if (error != cudaSuccess) bound_call(&Driver::cuMemFree, *address);
  return error;
}

// Allocates without the lock: an allocation may take long and come back into the runtime.
cudaError_t place(const void* symbol, CUdeviceptr* address) {
  const size_t bytes = variable_bytes(symbol);
  if (bytes == 0) return cudaErrorInvalidSymbol;
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  *address = known_place(symbol, device);
  if (*address != 0) return cudaSuccess;
  CUdeviceptr allocated = 0;
  if (cudaError_t error = allocate_zeroed(bytes, &allocated); error != cudaSuccess) return error;
  *address = remember_place(symbol, device, allocated);
  return *address == allocated ? cudaSuccess : bound_call(&Driver::cuMemFree, allocated);
}

}  // namespace

extern "C" {

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  if (address == nullptr) return finish(cudaErrorInvalidValue);
  CUdeviceptr found = 0;
  const cudaError_t error = place(symbol, &found);
  *address = reinterpret_cast<void*>(found);
  return finish(error);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  CUdeviceptr address = 0;
  if (cudaError_t error = place(symbol, &address); error != cudaSuccess) return finish(error);
  const size_t size = variable_bytes(symbol);
  if (offset > size || bytes > size - offset) return finish(cudaErrorInvalidValue);
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) {
    return finish(cudaErrorInvalidMemcpyDirection);
  }
  return finish(copy(reinterpret_cast<void*>(address + offset), from, bytes, kind, nullptr, true));
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  if (size == nullptr) return finish(cudaErrorInvalidValue);
  *size = variable_bytes(symbol);
  return finish(*size == 0 ? cudaErrorInvalidSymbol : cudaSuccess);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  CUdeviceptr address = 0;
  if (cudaError_t error = place(symbol, &address); error != cudaSuccess) return finish(error);
  const size_t size = variable_bytes(symbol);
  if (offset > size || bytes > size - offset) return finish(cudaErrorInvalidValue);
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) {
    return finish(cudaErrorInvalidMemcpyDirection);
  }
  return finish(copy(to, reinterpret_cast<void*>(address + offset), bytes, kind, nullptr, true));
}
}
