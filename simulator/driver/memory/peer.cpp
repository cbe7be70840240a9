// Access of one device to another's memory: every pair can, once it was enabled, or none.
#include "simulator/driver/entry/call.h"

using namespace spillway::simulator;

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  SPILLWAY_SIM_ENTER(cuDeviceCanAccessPeer);
  if (!canAccessPeer) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev) || !sim.device(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = sim.config.peer_access && dev != peerDev;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  SPILLWAY_SIM_ENTER(cuDeviceGetP2PAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(srcDevice) || !sim.device(dstDevice) || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  const bool supported =
      attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
      (attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED && sim.config.driver.native_atomics);
  *value = sim.config.peer_access && supported;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuCtxEnablePeerAccess);
  Context* current = current_context();
  const auto* peer = reinterpret_cast<Context*>(peerContext);
  if (!current || !peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == current->device) return CUDA_ERROR_INVALID_CONTEXT;
  if (!sim.config.peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const uint32_t bit = uint32_t{1} << peer->device->ordinal;
  if (current->device->peers & bit) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  current->device->peers |= bit;
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  SPILLWAY_SIM_ENTER(cuCtxDisablePeerAccess);
  Context* current = current_context();
  const auto* peer = reinterpret_cast<Context*>(peerContext);
  if (!current || !peer) return CUDA_ERROR_INVALID_CONTEXT;
  const uint32_t bit = uint32_t{1} << peer->device->ordinal;
  if (!(current->device->peers & bit)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  current->device->peers &= ~bit;
  return CUDA_SUCCESS;
}
