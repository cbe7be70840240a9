// What this runtime refuses, each call as a driver without the feature would: stream capture, graphs, sharing
// between processes.
#include "simulator/runtime/error.h"

using spillway::runtime::finish;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned int) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned int) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcCloseMemHandle(void*) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return finish(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return finish(cudaErrorNotSupported);
}
}
