// Device variables: each gets real simulated memory on a device when somebody first asks where it lies there.
#include <map>
#include <mutex>
#include <utility>

#include "simulator/runtime/copy.h"
#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"
#include "simulator/runtime/registry.h"

using namespace spillway::runtime;

namespace {

std::mutex mutex;
std::map<std::pair<const void*, int>, CUdeviceptr>& placed() {
  static auto* const instance = new std::map<std::pair<const void*, int>, CUdeviceptr>;
  return *instance;
}

cudaError_t place(const void* symbol, CUdeviceptr* address) {
  const size_t bytes = variable_bytes(symbol);
  if (bytes == 0) return cudaErrorInvalidSymbol;
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  CUdeviceptr& slot = placed()[{symbol, device}];
  if (slot == 0) {
    if (cudaError_t error = bound_call(&Driver::cuMemAlloc, &slot, bytes); error != cudaSuccess) return error;
    if (cudaError_t error = bound_call(&Driver::cuMemsetD8, slot, static_cast<unsigned char>(0), bytes);
        error != cudaSuccess) {
      return error;
    }
  }
  *address = slot;
  return cudaSuccess;
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
}
