// Graphs: the driver's, under the runtime's names. Kernel nodes come from capture alone.
#include "simulator/runtime/driver.h"

using namespace spillway::runtime;

namespace {

static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(sizeof(cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS));
static_assert(static_cast<int>(cudaGraphNodeTypeMemFree) == CU_GRAPH_NODE_TYPE_MEM_FREE);

CUgraphEdgeData* edges(cudaGraphEdgeData* data) {
  return reinterpret_cast<CUgraphEdgeData*>(data);
}

const CUgraphEdgeData* edges(const cudaGraphEdgeData* data) {
  return reinterpret_cast<const CUgraphEdgeData*>(data);
}

}  // namespace

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return finish(device_call(&Driver::cuGraphCreate, graph, flags));
}

cudaError_t cudaGraphClone(cudaGraph_t* copy, cudaGraph_t graph) {
  return finish(device_call(&Driver::cuGraphClone, copy, graph));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return finish(device_call(&Driver::cuGraphDestroy, graph));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return finish(device_call(&Driver::cuGraphDestroyNode, node));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return finish(device_call(&Driver::cuGraphGetNodes, graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return finish(device_call(&Driver::cuGraphGetRootNodes, graph, nodes, count));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* data, size_t* count) {
  return finish(device_call(&Driver::cuGraphGetEdges, graph, from, to, edges(data), count));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return finish(device_call(&Driver::cuGraphNodeGetType, node, reinterpret_cast<CUgraphNodeType*>(type)));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* data, size_t* count) {
  return finish(device_call(&Driver::cuGraphNodeGetDependencies, node, dependencies, edges(data), count));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* dependents,
                                           cudaGraphEdgeData* data, size_t* count) {
  return finish(device_call(&Driver::cuGraphNodeGetDependentNodes, node, dependents, edges(data), count));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* data, size_t count) {
  return finish(device_call(&Driver::cuGraphAddDependencies, graph, from, to, edges(data), count));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* dependencies, size_t count) {
  return finish(device_call(&Driver::cuGraphAddEmptyNode, node, graph, dependencies, count));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemsetParams* parameters) {
  return finish(bound_call(&Driver::cuGraphAddMemsetNode, node, graph, dependencies, count,
                           reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(parameters),
                           static_cast<CUcontext>(nullptr)));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* dependencies, size_t count,
                                 const cudaHostNodeParams* parameters) {
  return finish(device_call(&Driver::cuGraphAddHostNode, node, graph, dependencies, count,
                            reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(parameters)));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* dependencies, size_t count, cudaGraph_t child) {
  return finish(device_call(&Driver::cuGraphAddChildGraphNode, node, graph, dependencies, count, child));
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
  return finish(device_call(&Driver::cuGraphDebugDotPrint, graph, path, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return finish(bound_call(&Driver::cuGraphInstantiateWithFlags, exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* parameters) {
  return finish(bound_call(&Driver::cuGraphInstantiateWithParams, exec, graph,
                           reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(parameters)));
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  cuuint64_t value = 0;
  const cudaError_t error = device_call(&Driver::cuGraphExecGetFlags, exec, &value);
  if (error == cudaSuccess && flags != nullptr) *flags = value;
  return finish(flags == nullptr ? cudaErrorInvalidValue : error);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return finish(bound_call(&Driver::cuGraphExecUpdate, exec, graph,
                           reinterpret_cast<CUgraphExecUpdateResultInfo*>(info)));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return finish(bound_call(&Driver::cuGraphUpload, exec, stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return finish(bound_call(&Driver::cuGraphLaunch, exec, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return finish(device_call(&Driver::cuGraphExecDestroy, exec));
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
  return finish(device_call(&Driver::cuDeviceGraphMemTrim, device));
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType which, void* value) {
  return finish(device_call(&Driver::cuDeviceGetGraphMemAttribute, device,
                            static_cast<CUgraphMem_attribute>(which), value));
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType which, void* value) {
  return finish(device_call(&Driver::cuDeviceSetGraphMemAttribute, device,
                            static_cast<CUgraphMem_attribute>(which), value));
}
}
