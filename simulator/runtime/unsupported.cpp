// What this runtime refuses, each call as a driver without the feature would: sharing between processes.
#include "simulator/runtime/error.h"

using spillway::runtime::finish;

extern "C" {

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
