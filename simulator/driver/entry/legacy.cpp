// Older exports with the same meaning, and parameters that fit 64 bits, as newer ones. Their names are macros
// of cuda.h for the newer exports, so these go out of force first.
#include "simulator/driver/entry/call.h"

#undef cuCtxDestroy
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventDestroy
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuGraphAddDependencies
#undef cuGraphExecUpdate
#undef cuGraphGetEdges
#undef cuGraphInstantiate
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphRemoveDependencies
#undef cuStreamBeginCapture
#undef cuStreamUpdateCaptureDependencies
#undef cuIpcOpenMemHandle
#undef cuMemAdvise
#undef cuMemHostRegister
#undef cuMemPrefetchAsync
#undef cuMemcpyBatchAsync
#undef cuStreamDestroy
#undef cuStreamGetCaptureInfo

using namespace spillway::simulator;

namespace {
CUmemLocation location_of(CUdevice device) {
  return {.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
          .id = device == CU_DEVICE_CPU ? 0 : device};
}
}  // namespace

SPILLWAY_SIM_FORWARD(cuCtxDestroy, (CUcontext ctx), cuCtxDestroy_v2, (ctx))
SPILLWAY_SIM_FORWARD(cuCtxPopCurrent, (CUcontext * pctx), cuCtxPopCurrent_v2, (pctx))
SPILLWAY_SIM_FORWARD(cuCtxPushCurrent, (CUcontext ctx), cuCtxPushCurrent_v2, (ctx))
SPILLWAY_SIM_FORWARD(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), cuDeviceGetUuid_v2, (uuid, dev))
SPILLWAY_SIM_FORWARD(cuDevicePrimaryCtxRelease, (CUdevice dev), cuDevicePrimaryCtxRelease_v2, (dev))
SPILLWAY_SIM_FORWARD(cuDevicePrimaryCtxReset, (CUdevice dev), cuDevicePrimaryCtxReset_v2, (dev))
SPILLWAY_SIM_FORWARD(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned int flags),
                     cuDevicePrimaryCtxSetFlags_v2, (dev, flags))
SPILLWAY_SIM_FORWARD(cuEventDestroy, (CUevent event), cuEventDestroy_v2, (event))
SPILLWAY_SIM_FORWARD(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end),
                     cuEventElapsedTime_v2, (milliseconds, start, end))
SPILLWAY_SIM_FORWARD(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags),
                     cuIpcOpenMemHandle_v2, (address, handle, flags))
SPILLWAY_SIM_FORWARD(cuMemcpyBatchAsync,
                     (CUdeviceptr * targets, CUdeviceptr* sources, size_t* sizes, size_t count,
                      CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, size_t*,
                      CUstream stream),
                     cuMemcpyBatchAsync_v2,
                     (targets, sources, sizes, count, attributes, indices, attribute_count, stream))
SPILLWAY_SIM_FORWARD(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
                     cuMemAdvise_v2, (address, bytes, advice, location_of(device)))
SPILLWAY_SIM_FORWARD(cuMemPrefetchAsync,
                     (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
                     cuMemPrefetchAsync_v2, (address, bytes, location_of(device), 0, stream))
SPILLWAY_SIM_FORWARD(cuMemPrefetchAsync_ptsz,
                     (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
                     cuMemPrefetchAsync_v2, (address, bytes, location_of(device), 0, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemHostRegister, (void* p, size_t bytes, unsigned int flags), cuMemHostRegister_v2,
                     (p, bytes, flags))
SPILLWAY_SIM_FORWARD(cuStreamDestroy, (CUstream stream), cuStreamDestroy_v2, (stream))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                     cuStreamGetCaptureInfo_v3, (stream, status, id, nullptr, nullptr, nullptr, nullptr))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_v2,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count),
                     cuStreamGetCaptureInfo_v3, (stream, status, id, graph, dependencies, nullptr, count))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                     cuStreamGetCaptureInfo_v3,
                     (per_thread(stream), status, id, nullptr, nullptr, nullptr, nullptr))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_v2_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count),
                     cuStreamGetCaptureInfo_v3,
                     (per_thread(stream), status, id, graph, dependencies, nullptr, count))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_v3_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count),
                     cuStreamGetCaptureInfo_v3,
                     (per_thread(stream), status, id, graph, dependencies, edges, count))

SPILLWAY_SIM_FORWARD(cuStreamBeginCapture, (CUstream stream), cuStreamBeginCapture_v2,
                     (stream, CU_STREAM_CAPTURE_MODE_GLOBAL))
SPILLWAY_SIM_FORWARD(cuStreamBeginCapture_ptsz, (CUstream stream), cuStreamBeginCapture_v2,
                     (per_thread(stream), CU_STREAM_CAPTURE_MODE_GLOBAL))
SPILLWAY_SIM_FORWARD(cuStreamUpdateCaptureDependencies,
                     (CUstream stream, CUgraphNode* dependencies, size_t count, unsigned int flags),
                     cuStreamUpdateCaptureDependencies_v2, (stream, dependencies, nullptr, count, flags))
SPILLWAY_SIM_FORWARD(cuStreamUpdateCaptureDependencies_ptsz,
                     (CUstream stream, CUgraphNode* dependencies, size_t count, unsigned int flags),
                     cuStreamUpdateCaptureDependencies_v2,
                     (per_thread(stream), dependencies, nullptr, count, flags))
SPILLWAY_SIM_FORWARD(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode*, char*, size_t),
                     cuGraphInstantiateWithFlags, (exec, graph, 0))
SPILLWAY_SIM_FORWARD(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode*, char*, size_t),
                     cuGraphInstantiateWithFlags, (exec, graph, 0))
SPILLWAY_SIM_FORWARD(cuGraphGetEdges, (CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count),
                     cuGraphGetEdges_v2, (graph, from, to, nullptr, count))
SPILLWAY_SIM_FORWARD(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* out, size_t* count),
                     cuGraphNodeGetDependencies_v2, (node, out, nullptr, count))
SPILLWAY_SIM_FORWARD(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode* out, size_t* count),
                     cuGraphNodeGetDependentNodes_v2, (node, out, nullptr, count))
SPILLWAY_SIM_FORWARD(cuGraphAddDependencies,
                     (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
                     cuGraphAddDependencies_v2, (graph, from, to, nullptr, count))
SPILLWAY_SIM_FORWARD(cuGraphRemoveDependencies,
                     (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count),
                     cuGraphRemoveDependencies_v2, (graph, from, to, nullptr, count))

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* outcome) {
  const OuterSite outer(SPILLWAY_SIM_CALLER);
  CUgraphExecUpdateResultInfo info = {};
  if (!error_node || !outcome) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
  *error_node = info.errorNode;
  *outcome = info.result;
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}
