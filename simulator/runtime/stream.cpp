// Streams and events. Handles are the driver's, the legacy and the per-thread stream's included.
#include <memory>

#include "simulator/runtime/driver.h"

using namespace spillway::runtime;

namespace {

// cudaStreamAddCallback's function wants the runtime's error, cuStreamAddCallback's the driver's.
struct Callback {
  cudaStreamCallback_t function;
  void* argument;
};

void run_callback(CUstream stream, CUresult status, void* argument) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(argument));
  callback->function(stream, to_runtime(status), callback->argument);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return finish(bound_call(&Driver::cuStreamCreate, stream, static_cast<unsigned>(cudaStreamDefault)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return finish(bound_call(&Driver::cuStreamCreate, stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return finish(bound_call(&Driver::cuStreamCreateWithPriority, stream, flags, priority));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return finish(bound_call(&Driver::cuStreamGetPriority, stream, priority));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return finish(bound_call(&Driver::cuStreamGetFlags, stream, flags));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return finish(bound_call(&Driver::cuStreamGetId, stream, id));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return finish(bound_call(&Driver::cuStreamGetDevice, stream, device));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return finish(bound_call(&Driver::cuStreamDestroy, stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return finish(bound_call(&Driver::cuStreamQuery, stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return finish(bound_call(&Driver::cuStreamSynchronize, stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return finish(bound_call(&Driver::cuStreamWaitEvent, stream, event, flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return finish(bound_call(&Driver::cuLaunchHostFunc, stream, function, argument));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* argument,
                                  unsigned int flags) {
  if (function == nullptr || flags != 0) return finish(cudaErrorInvalidValue);
  auto* callback = new Callback{function, argument};  // run_callback owns it once it is submitted
  const cudaError_t error =
      bound_call(&Driver::cuStreamAddCallback, stream, &run_callback, static_cast<void*>(callback), flags);
  if (error != cudaSuccess) delete callback;
  return finish(error);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return finish(bound_call(&Driver::cuEventCreate, event, static_cast<unsigned>(cudaEventDefault)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return finish(bound_call(&Driver::cuEventCreate, event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return finish(bound_call(&Driver::cuEventDestroy, event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return finish(bound_call(&Driver::cuEventRecord, event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  return finish(bound_call(&Driver::cuEventRecordWithFlags, event, stream, flags));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return finish(bound_call(&Driver::cuEventQuery, event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return finish(bound_call(&Driver::cuEventSynchronize, event));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return finish(bound_call(&Driver::cuEventElapsedTime, milliseconds, start, end));
}
}
