#include "simulator/runtime/device.h"

#include <array>
#include <atomic>

#include "simulator/runtime/driver.h"
#include "simulator/runtime/plugins.h"

namespace spillway::runtime {
namespace {

constexpr int kMaxDevices = 64;
std::array<std::atomic<CUcontext>, kMaxDevices> primary_contexts;
thread_local int selected_device = 0;

cudaError_t check_device(int device) {
  int count = 0;
  if (cudaError_t error = device_call(&Driver::cuDeviceGetCount, &count); error != cudaSuccess) return error;
  if (count == 0) return cudaErrorNoDevice;
  return device >= 0 && device < count && device < kMaxDevices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t select_device(int device) {
  CUcontext context = nullptr;
  if (cudaError_t error = primary_context(device, &context); error != cudaSuccess) return error;
  if (cudaError_t error = device_call(&Driver::cuCtxSetCurrent, context); error != cudaSuccess) return error;
  selected_device = device;
  return cudaSuccess;
}

}  // namespace

cudaError_t primary_context(int device, CUcontext* context) {
  if (cudaError_t error = check_device(device); error != cudaSuccess) return error;
  std::atomic<CUcontext>& slot = primary_contexts[static_cast<size_t>(device)];
  *context = slot.load(std::memory_order_acquire);
  if (*context != nullptr) return cudaSuccess;
  CUcontext retained = nullptr;
  if (cudaError_t error = device_call(&Driver::cuDevicePrimaryCtxRetain, &retained, device);
      error != cudaSuccess) {
    return error;
  }
  // Two threads may get here together: the driver counts, and the second gives its count back.
  if (slot.compare_exchange_strong(*context, retained, std::memory_order_acq_rel)) {
    *context = retained;
  } else {
    device_call(&Driver::cuDevicePrimaryCtxRelease, device);
  }
  return cudaSuccess;
}

cudaError_t bind_context() {
  CUcontext current = nullptr;
  if (cudaError_t error = device_call(&Driver::cuCtxGetCurrent, &current); error != cudaSuccess) return error;
  return current != nullptr ? cudaSuccess : select_device(selected_device);
}

cudaError_t current_device(int* device) {
  CUcontext current = nullptr;
  if (cudaError_t error = device_call(&Driver::cuCtxGetCurrent, &current); error != cudaSuccess) return error;
  *device = selected_device;
  return current == nullptr ? cudaSuccess : device_call(&Driver::cuCtxGetDevice, device);
}

int attribute(int device, CUdevice_attribute which) {
  int value = 0;
  return device_call(&Driver::cuDeviceGetAttribute, &value, which, device) == cudaSuccess ? value : 0;
}

}  // namespace spillway::runtime

using namespace spillway::runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  install_plugins(Moment::kCount);
  if (count == nullptr) return finish(cudaErrorInvalidValue);
  *count = 0;
  cudaError_t error = device_call(&Driver::cuDeviceGetCount, count);
  if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
  return finish(error);
}

cudaError_t cudaGetDevice(int* device) {
  install_plugins(Moment::kDevice);
  return finish(device == nullptr ? cudaErrorInvalidValue : current_device(device));
}

cudaError_t cudaSetDevice(int device) {
  install_plugins(Moment::kDevice);
  return finish(select_device(device));
}

cudaError_t cudaDeviceSynchronize() {
  return finish(bound_call(&Driver::cuCtxSynchronize));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return finish(bound_call(&Driver::cuCtxGetStreamPriorityRange, least, greatest));
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return finish(device_call(&Driver::cuDeviceGetPCIBusId, text, size, device));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return finish(device_call(&Driver::cuDeviceCanAccessPeer, can, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  CUcontext context = nullptr;
  if (cudaError_t error = primary_context(peer, &context); error != cudaSuccess) return finish(error);
  return finish(bound_call(&Driver::cuCtxEnablePeerAccess, context, flags));
}

// Answered also where the driver is too old for this runtime; 0: there is none.
cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return finish(cudaErrorInvalidValue);
  *version = 0;
  const auto ask = driver().cuDriverGetVersion;
  return finish(ask == nullptr ? cudaSuccess : to_runtime(ask(version)));
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return finish(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found) {
  if (symbol == nullptr || function == nullptr) return finish(cudaErrorInvalidValue);
  const Driver& table = driver();
  if (table.state != cudaSuccess) return finish(table.state);
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  *function = nullptr;
  const CUresult outcome =
      table.get_proc_address(symbol, function, static_cast<int>(version), flags, &result);
  if (found != nullptr) *found = static_cast<cudaDriverEntryPointQueryResult>(result);
  // A symbol that is not there is an answer, not an error.
  return finish(outcome == CUDA_ERROR_NOT_FOUND && found != nullptr ? cudaSuccess : to_runtime(outcome));
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, found);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return finish(device_call(&Driver::cuDeviceGetByPCIBusId, device, text));
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int from, int to) {
  return finish(device_call(&Driver::cuDeviceGetP2PAttribute, value,
                            static_cast<CUdevice_P2PAttribute>(which), from, to));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  CUcontext context = nullptr;
  if (cudaError_t error = primary_context(peer, &context); error != cudaSuccess) return finish(error);
  return finish(bound_call(&Driver::cuCtxDisablePeerAccess, context));
}

// The driver's reset waits for the device and keeps what is on it; so does the primary context here.
cudaError_t cudaDeviceReset() {
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return finish(error);
  return finish(device_call(&Driver::cuDevicePrimaryCtxReset, device));
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  CUcontext context = nullptr;
  return finish(primary_context(device, &context));
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return finish(bound_call(&Driver::cuCtxGetFlags, flags));
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return finish(error);
  return finish(device_call(&Driver::cuDevicePrimaryCtxSetFlags, device, flags));
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit which) {
  return finish(bound_call(&Driver::cuCtxGetLimit, value, static_cast<CUlimit>(which)));
}

cudaError_t cudaDeviceSetLimit(cudaLimit which, size_t value) {
  return finish(bound_call(&Driver::cuCtxSetLimit, static_cast<CUlimit>(which), value));
}

cudaError_t cudaProfilerStart() {
  return finish(bind_context());
}

cudaError_t cudaProfilerStop() {
  return finish(bind_context());
}
}
