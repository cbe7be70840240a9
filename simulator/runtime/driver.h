// The driver below the runtime, found as NVIDIA's runtime finds it: dlopen("libcuda.so.1") and
// cuGetProcAddress.
//
// Thread-safety: everything may be called from any thread; the table is filled once and never changes.
// Ownership: the driver is never unloaded. Errors: a function that this driver lacks is a null field, and
// calling it through `device_call` or `bound_call` gives cudaErrorNotSupported; a missing driver gives
// cudaErrorInsufficientDriver.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver/simulator_control.h"
#include "simulator/runtime/error.h"

// The names are cuda.h's: its macros choose the version that the headers mean, cuGetProcAddress finds that
// one.
#define SPILLWAY_RUNTIME_DRIVER(F)     \
  F(cuInit)                            \
  F(cuDriverGetVersion)                \
  F(cuDeviceGetCount)                  \
  F(cuDeviceGetName)                   \
  F(cuDeviceGetUuid)                   \
  F(cuDeviceTotalMem)                  \
  F(cuDeviceGetAttribute)              \
  F(cuDeviceGetPCIBusId)               \
  F(cuDeviceCanAccessPeer)             \
  F(cuDeviceGetDefaultMemPool)         \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuDevicePrimaryCtxRelease)         \
  F(cuCtxGetCurrent)                   \
  F(cuCtxSetCurrent)                   \
  F(cuCtxGetDevice)                    \
  F(cuCtxSynchronize)                  \
  F(cuCtxGetStreamPriorityRange)       \
  F(cuCtxEnablePeerAccess)             \
  F(cuMemGetInfo)                      \
  F(cuMemAlloc)                        \
  F(cuMemFree)                         \
  F(cuMemAllocAsync)                   \
  F(cuMemAllocManaged)                 \
  F(cuMemPrefetchAsync)                \
  F(cuMemAdvise)                       \
  F(cuMemFreeAsync)                    \
  F(cuMemPoolGetAttribute)             \
  F(cuMemPoolSetAttribute)             \
  F(cuMemPoolSetAccess)                \
  F(cuMemPoolTrimTo)                   \
  F(cuMemHostAlloc)                    \
  F(cuMemFreeHost)                     \
  F(cuMemHostRegister)                 \
  F(cuMemHostUnregister)               \
  F(cuPointerGetAttribute)             \
  F(cuMemcpyHtoD)                      \
  F(cuMemcpyDtoH)                      \
  F(cuMemcpyDtoD)                      \
  F(cuMemcpyHtoDAsync)                 \
  F(cuMemcpyDtoHAsync)                 \
  F(cuMemcpyDtoDAsync)                 \
  F(cuMemcpyPeerAsync)                 \
  F(cuMemcpy2DAsync)                   \
  F(cuMemsetD8)                        \
  F(cuMemsetD8Async)                   \
  F(cuStreamCreate)                    \
  F(cuStreamCreateWithPriority)        \
  F(cuStreamGetPriority)               \
  F(cuStreamDestroy)                   \
  F(cuStreamQuery)                     \
  F(cuStreamSynchronize)               \
  F(cuStreamWaitEvent)                 \
  F(cuLaunchHostFunc)                  \
  F(cuLaunchKernel)                    \
  F(cuEventCreate)                     \
  F(cuEventDestroy)                    \
  F(cuEventRecord)                     \
  F(cuEventRecordWithFlags)            \
  F(cuEventQuery)                      \
  F(cuEventSynchronize)                \
  F(cuEventElapsedTime)                \
  F(cuMemcpy)                          \
  F(cuMemcpyAsync)                     \
  F(cuStreamAddCallback)               \
  F(cuStreamBeginCapture)              \
  F(cuStreamBeginCaptureToGraph)       \
  F(cuStreamEndCapture)                \
  F(cuStreamIsCapturing)               \
  F(cuStreamGetCaptureInfo)            \
  F(cuStreamUpdateCaptureDependencies) \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuGraphCreate)                     \
  F(cuGraphClone)                      \
  F(cuGraphDestroy)                    \
  F(cuGraphDestroyNode)                \
  F(cuGraphGetNodes)                   \
  F(cuGraphGetRootNodes)               \
  F(cuGraphGetEdges)                   \
  F(cuGraphNodeGetType)                \
  F(cuGraphNodeGetDependencies)        \
  F(cuGraphNodeGetDependentNodes)      \
  F(cuGraphAddDependencies)            \
  F(cuGraphAddEmptyNode)               \
  F(cuGraphAddMemsetNode)              \
  F(cuGraphAddHostNode)                \
  F(cuGraphAddChildGraphNode)          \
  F(cuGraphDebugDotPrint)              \
  F(cuGraphInstantiateWithFlags)       \
  F(cuGraphInstantiateWithParams)      \
  F(cuGraphExecGetFlags)               \
  F(cuGraphExecUpdate)                 \
  F(cuGraphUpload)                     \
  F(cuGraphLaunch)                     \
  F(cuGraphExecDestroy)                \
  F(cuDeviceGraphMemTrim)              \
  F(cuDeviceGetGraphMemAttribute)      \
  F(cuDeviceGetByPCIBusId)             \
  F(cuDeviceGetP2PAttribute)           \
  F(cuDeviceGetMemPool)                \
  F(cuDeviceSetMemPool)                \
  F(cuDevicePrimaryCtxReset)           \
  F(cuDevicePrimaryCtxSetFlags)        \
  F(cuCtxGetFlags)                     \
  F(cuCtxGetLimit)                     \
  F(cuCtxSetLimit)                     \
  F(cuCtxDisablePeerAccess)            \
  F(cuMemAllocPitch)                   \
  F(cuMemAllocFromPoolAsync)           \
  F(cuMemPoolCreate)                   \
  F(cuMemPoolDestroy)                  \
  F(cuMemPoolGetAccess)                \
  F(cuMemHostGetDevicePointer)         \
  F(cuMemHostGetFlags)                 \
  F(cuMemcpy2D)                        \
  F(cuMemcpyPeer)                      \
  F(cuMemsetD2D8)                      \
  F(cuMemsetD2D8Async)                 \
  F(cuStreamGetFlags)                  \
  F(cuStreamGetId)                     \
  F(cuStreamGetDevice)                 \
  F(cuIpcGetMemHandle)                 \
  F(cuIpcOpenMemHandle)                \
  F(cuIpcCloseMemHandle)               \
  F(cuIpcGetEventHandle)               \
  F(cuIpcOpenEventHandle)              \
  F(cuDeviceSetGraphMemAttribute)

namespace spillway::runtime {

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name being declared takes none.
#define SPILLWAY_RUNTIME_FIELD(name) decltype(&::name) name = nullptr;
  SPILLWAY_RUNTIME_DRIVER(SPILLWAY_RUNTIME_FIELD)
#undef SPILLWAY_RUNTIME_FIELD
  decltype(&::cuGetProcAddress) get_proc_address = nullptr;
  const SpillwaySimulatorControl* control = nullptr;
  // Why the runtime cannot work: no driver, one that is no simulator, or cuInit's own answer.
  cudaError_t state = cudaErrorInsufficientDriver;
};

const Driver& driver();

// A call that needs no context.
template <class... Parameters, class... Arguments>
cudaError_t device_call(CUresult (*Driver::*function)(Parameters...), Arguments... arguments) {
  const Driver& table = driver();
  if (table.state != cudaSuccess) return table.state;
  if (table.*function == nullptr) return cudaErrorNotSupported;
  return to_runtime((table.*function)(arguments...));
}

// Makes a context current on the calling thread: the one that is current already, else the primary context of
// the thread's device. Device memory, streams and events need one.
cudaError_t bind_context();

// A call in the thread's context.
template <class... Parameters, class... Arguments>
cudaError_t bound_call(CUresult (*Driver::*function)(Parameters...), Arguments... arguments) {
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  return device_call(function, arguments...);
}

}  // namespace spillway::runtime
