// Older exports with the same meaning, and parameters that fit 64 bits, as newer ones. Their names are macros
// of cuda.h for the newer exports, so these go out of force first.
#include "simulator/driver/call.h"

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
#undef cuMemHostRegister
#undef cuStreamDestroy
#undef cuStreamGetCaptureInfo

using namespace spillway::simulator;

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
SPILLWAY_SIM_FORWARD(cuMemHostRegister, (void* p, size_t bytes, unsigned int flags), cuMemHostRegister_v2,
                     (p, bytes, flags))
SPILLWAY_SIM_FORWARD(cuStreamDestroy, (CUstream stream), cuStreamDestroy_v2, (stream))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                     cuStreamGetCaptureInfo_v2, (stream, status, id, nullptr, nullptr, nullptr))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                     cuStreamGetCaptureInfo_v2, (per_thread(stream), status, id, nullptr, nullptr, nullptr))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_v2_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count),
                     cuStreamGetCaptureInfo_v2, (per_thread(stream), status, id, graph, dependencies, count))
SPILLWAY_SIM_FORWARD(cuStreamGetCaptureInfo_v3_ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count),
                     cuStreamGetCaptureInfo_v3,
                     (per_thread(stream), status, id, graph, dependencies, edges, count))

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}
