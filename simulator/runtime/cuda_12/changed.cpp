// What CUDA 13 has changed in the runtime's functions, as it was: other structures, and functions without
// edge data and places of memory. Those with new arguments have the old names in CUDA 13, so that the headers
// declare what is not meant: the symbols are named beside.
#include "simulator/runtime/cuda_12/forward.h"

namespace {

constexpr int kVersion = 12080;

struct PointerAttributes {
  cudaMemoryType type;
  int device;
  void* device_pointer;
  void* host_pointer;
};
static_assert(sizeof(PointerAttributes) == 24 && sizeof(cudaPointerAttributes) > 24);

cudaMemLocation place_of(int device) {
  cudaMemLocation place{};
  place.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  place.id = device == cudaCpuDeviceId ? 0 : device;
  return place;
}

}  // namespace

#define SPILLWAY_CUDA_12(result, function, name, ...)    \
  extern "C" result function(__VA_ARGS__) __asm__(name); \
  extern "C" result function(__VA_ARGS__)

// A process whose kernels were compiled with CUDA 12 gets along with a driver of CUDA 12.
SPILLWAY_CUDA_12(void**, register_binary, "__cudaRegisterFatBinary", void* binary) {
  using Serve = void (*)(int);
  using Register = void** (*)(void*);
  reinterpret_cast<Serve>(spillway::runtime_12::newer("cudaSpillwayServe"))(kVersion);
  return reinterpret_cast<Register>(spillway::runtime_12::newer("__cudaRegisterFatBinary"))(binary);
}

SPILLWAY_CUDA_12(cudaError_t, runtime_version, "cudaRuntimeGetVersion", int* version) {
  const cudaError_t error = SPILLWAY_NEWER(cudaRuntimeGetVersion)(version);
  if (error == cudaSuccess) *version = kVersion;
  return error;
}

SPILLWAY_CUDA_12(cudaError_t, driver_entry, "cudaGetDriverEntryPoint", const char* symbol, void** function,
                 unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  return SPILLWAY_NEWER(cudaGetDriverEntryPointByVersion)(symbol, function, kVersion, flags, found);
}

SPILLWAY_CUDA_12(cudaError_t, pointer_attributes, "cudaPointerGetAttributes", PointerAttributes* attributes,
                 const void* pointer) {
  cudaPointerAttributes newer{};
  const cudaError_t error =
      SPILLWAY_NEWER(cudaPointerGetAttributes)(attributes == nullptr ? nullptr : &newer, pointer);
  if (attributes != nullptr) *attributes = {newer.type, newer.device, newer.devicePointer, newer.hostPointer};
  return error;
}

SPILLWAY_CUDA_12(cudaError_t, advise, "cudaMemAdvise", const void* pointer, size_t bytes,
                 cudaMemoryAdvise advice, int device) {
  return SPILLWAY_NEWER(cudaMemAdvise)(pointer, bytes, advice, place_of(device));
}

SPILLWAY_CUDA_12(cudaError_t, advise_v2, "cudaMemAdvise_v2", const void* pointer, size_t bytes,
                 cudaMemoryAdvise advice, cudaMemLocation place) {
  return SPILLWAY_NEWER(cudaMemAdvise)(pointer, bytes, advice, place);
}

SPILLWAY_CUDA_12(cudaError_t, prefetch, "cudaMemPrefetchAsync", const void* pointer, size_t bytes, int device,
                 cudaStream_t stream) {
  return SPILLWAY_NEWER(cudaMemPrefetchAsync)(pointer, bytes, place_of(device), 0, stream);
}

SPILLWAY_CUDA_12(cudaError_t, prefetch_v2, "cudaMemPrefetchAsync_v2", const void* pointer, size_t bytes,
                 cudaMemLocation place, unsigned int flags, cudaStream_t stream) {
  return SPILLWAY_NEWER(cudaMemPrefetchAsync)(pointer, bytes, place, flags, stream);
}

SPILLWAY_CUDA_12(cudaError_t, elapsed_v2, "cudaEventElapsedTime_v2", float* ms, cudaEvent_t start,
                 cudaEvent_t end) {
  return SPILLWAY_NEWER(cudaEventElapsedTime)(ms, start, end);
}

SPILLWAY_CUDA_12(cudaError_t, capture_info, "cudaStreamGetCaptureInfo", cudaStream_t stream,
                 cudaStreamCaptureStatus* status, unsigned long long* id) {
  return SPILLWAY_NEWER(cudaStreamGetCaptureInfo)(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

SPILLWAY_CUDA_12(cudaError_t, capture_info_v2, "cudaStreamGetCaptureInfo_v2", cudaStream_t stream,
                 cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                 const cudaGraphNode_t** dependencies, size_t* count) {
  return SPILLWAY_NEWER(cudaStreamGetCaptureInfo)(stream, status, id, graph, dependencies, nullptr, count);
}

SPILLWAY_CUDA_12(cudaError_t, capture_info_v3, "cudaStreamGetCaptureInfo_v3", cudaStream_t stream,
                 cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                 const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** data, size_t* count) {
  return SPILLWAY_NEWER(cudaStreamGetCaptureInfo)(stream, status, id, graph, dependencies, data, count);
}

SPILLWAY_CUDA_12(cudaError_t, update_capture, "cudaStreamUpdateCaptureDependencies", cudaStream_t stream,
                 cudaGraphNode_t* dependencies, size_t count, unsigned int flags) {
  return SPILLWAY_NEWER(cudaStreamUpdateCaptureDependencies)(stream, dependencies, nullptr, count, flags);
}

SPILLWAY_CUDA_12(cudaError_t, graph_edges, "cudaGraphGetEdges", cudaGraph_t graph, cudaGraphNode_t* from,
                 cudaGraphNode_t* to, size_t* count) {
  return SPILLWAY_NEWER(cudaGraphGetEdges)(graph, from, to, nullptr, count);
}

SPILLWAY_CUDA_12(cudaError_t, graph_dependencies, "cudaGraphNodeGetDependencies", cudaGraphNode_t node,
                 cudaGraphNode_t* dependencies, size_t* count) {
  return SPILLWAY_NEWER(cudaGraphNodeGetDependencies)(node, dependencies, nullptr, count);
}

SPILLWAY_CUDA_12(cudaError_t, graph_dependents, "cudaGraphNodeGetDependentNodes", cudaGraphNode_t node,
                 cudaGraphNode_t* dependents, size_t* count) {
  return SPILLWAY_NEWER(cudaGraphNodeGetDependentNodes)(node, dependents, nullptr, count);
}

SPILLWAY_CUDA_12(cudaError_t, add_dependencies, "cudaGraphAddDependencies", cudaGraph_t graph,
                 const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) {
  return SPILLWAY_NEWER(cudaGraphAddDependencies)(graph, from, to, nullptr, count);
}
#undef SPILLWAY_CUDA_12
