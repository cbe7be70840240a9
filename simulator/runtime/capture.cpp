// Stream capture: the driver's, under the runtime's names.
#include "simulator/runtime/driver.h"

using namespace spillway::runtime;

namespace {

// The headers declare the types once for each API.
static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(static_cast<int>(cudaStreamCaptureModeRelaxed) == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(static_cast<int>(cudaStreamCaptureStatusInvalidated) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);

const CUgraphEdgeData* edges(const cudaGraphEdgeData* data) {
  return reinterpret_cast<const CUgraphEdgeData*>(data);
}

CUstreamCaptureStatus* status_of(cudaStreamCaptureStatus* status) {
  return reinterpret_cast<CUstreamCaptureStatus*>(status);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return finish(bound_call(&Driver::cuStreamBeginCapture, stream, static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* data,
                                          size_t count, cudaStreamCaptureMode mode) {
  return finish(bound_call(&Driver::cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges(data),
                           count, static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return finish(bound_call(&Driver::cuStreamEndCapture, stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return finish(bound_call(&Driver::cuStreamIsCapturing, stream, status_of(status)));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** data,
                                     size_t* count) {
  cuuint64_t number = 0;
  const cudaError_t error =
      bound_call(&Driver::cuStreamGetCaptureInfo, stream, status_of(status), &number, graph, dependencies,
                 reinterpret_cast<const CUgraphEdgeData**>(data), count);
  if (error == cudaSuccess && id != nullptr) *id = number;
  return finish(error);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* data, size_t count,
                                                unsigned int flags) {
  return finish(bound_call(&Driver::cuStreamUpdateCaptureDependencies, stream, dependencies, edges(data),
                           count, flags));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return finish(
      device_call(&Driver::cuThreadExchangeStreamCaptureMode, reinterpret_cast<CUstreamCaptureMode*>(mode)));
}
}
