// Nodes that the program adds by hand, and what it may ask of a node.
#include <bit>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/graph.h"
#include "simulator/driver/work/copy.h"
#include "simulator/driver/work/launch.h"

namespace spillway::simulator {
namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count, Work work,
             Site site) {
  Graph* graph = find_graph(handle);
  std::vector<Node*> before;
  if (!out || !graph || !find_nodes(dependencies, count, graph, before)) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(graph->add(std::move(work), before, site));
  return CUDA_SUCCESS;
}

template <typename Kind>
Kind* work_of(CUgraphNode handle) {
  Node* node = find_node(handle);
  return node ? std::get_if<Kind>(&node->work) : nullptr;
}

bool valid_fill(const CUDA_MEMSET_NODE_PARAMS& fill) {
  const bool size = fill.elementSize == 1 || fill.elementSize == 2 || fill.elementSize == 4;
  return size && fill.dst && fill.dst % fill.elementSize == 0 && fill.width > 0 && fill.height > 0 &&
         fill.width <= UINT64_MAX / fill.elementSize &&
         (fill.height == 1 ||
          (fill.pitch % fill.elementSize == 0 && fill.pitch >= fill.width * fill.elementSize));
}

FillWork fill_work(const CUDA_MEMSET_NODE_PARAMS& fill) {
  return {fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height};
}

template <typename Kind>
CUresult add_event(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   CUevent event, Site site) {
  const Event* found = find_event(event);
  return found ? add(out, graph, dependencies, count, Kind{found->id}, site) : CUDA_ERROR_INVALID_VALUE;
}

template <typename Kind>
CUresult event_of(CUgraphNode handle, CUevent* out) {
  const Kind* work = work_of<Kind>(handle);
  if (!work || !out) return CUDA_ERROR_INVALID_VALUE;
  const auto event = machine().events.find(work->event);
  if (event == machine().events.end()) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUevent>(event->second.get());
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphAddKernelNode);
  if (!nodeParams || !(nodeParams->func || nodeParams->kern)) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, numDependencies, binary_work(*nodeParams), call.site());
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphKernelNodeGetParams);
  const auto* work = work_of<KernelWork>(hNode);
  if (!work || !nodeParams) return CUDA_ERROR_INVALID_VALUE;
  *nodeParams = work->launch;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphKernelNodeSetParams);
  auto* work = work_of<KernelWork>(hNode);
  if (!work || !nodeParams || !(nodeParams->func || nodeParams->kern)) return CUDA_ERROR_INVALID_VALUE;
  *work = binary_work(*nodeParams);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext) {
  SPILLWAY_SIM_ENTER(cuGraphAddMemcpyNode);
  CopyWork work;
  if (const CUresult result = copy_work(copyParams, work); result != CUDA_SUCCESS) return result;
  return add(phGraphNode, hGraph, dependencies, numDependencies, work, call.site());
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext) {
  SPILLWAY_SIM_ENTER(cuGraphAddMemsetNode);
  if (!memsetParams || !valid_fill(*memsetParams)) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, numDependencies, fill_work(*memsetParams), call.site());
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphMemsetNodeGetParams);
  const auto* work = work_of<FillWork>(hNode);
  if (!work || !nodeParams) return CUDA_ERROR_INVALID_VALUE;
  *nodeParams = {.dst = work->address,
                 .pitch = work->pitch,
                 .value = work->value,
                 .elementSize = work->value_bytes,
                 .width = work->width,
                 .height = work->rows};
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphMemsetNodeSetParams);
  auto* work = work_of<FillWork>(hNode);
  if (!work || !nodeParams || !valid_fill(*nodeParams)) return CUDA_ERROR_INVALID_VALUE;
  *work = fill_work(*nodeParams);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphAddHostNode);
  if (!nodeParams || !nodeParams->fn) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, numDependencies,
             HostWork{nodeParams->fn, nodeParams->userData}, call.site());
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphHostNodeGetParams);
  const auto* work = work_of<HostWork>(hNode);
  if (!work || !nodeParams) return CUDA_ERROR_INVALID_VALUE;
  *nodeParams = {.fn = work->function, .userData = work->data};
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
  SPILLWAY_SIM_ENTER(cuGraphAddEmptyNode);
  return add(phGraphNode, hGraph, dependencies, numDependencies, EmptyWork{}, call.site());
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
  SPILLWAY_SIM_ENTER(cuGraphAddChildGraphNode);
  const Graph* child = find_graph(childGraph);
  if (!child || childGraph == hGraph) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, numDependencies, ChildWork{child->clone()}, call.site());
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SPILLWAY_SIM_ENTER(cuGraphChildGraphNodeGetGraph);
  const auto* work = work_of<ChildWork>(hNode);
  if (!work || !phGraph) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = handle_of(work->graph.get());
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                   size_t numDependencies, CUevent event) {
  SPILLWAY_SIM_ENTER(cuGraphAddEventRecordNode);
  return add_event<RecordWork>(phGraphNode, hGraph, dependencies, numDependencies, event, call.site());
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SPILLWAY_SIM_ENTER(cuGraphEventRecordNodeGetEvent);
  return event_of<RecordWork>(hNode, event_out);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, CUevent event) {
  SPILLWAY_SIM_ENTER(cuGraphAddEventWaitNode);
  return add_event<WaitWork>(phGraphNode, hGraph, dependencies, numDependencies, event, call.site());
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SPILLWAY_SIM_ENTER(cuGraphEventWaitNodeGetEvent);
  return event_of<WaitWork>(hNode, event_out);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphAddMemAllocNode);
  if (!nodeParams || nodeParams->bytesize == 0 ||
      nodeParams->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = sim.device(nodeParams->poolProps.location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (nodeParams->bytesize > device->account.capacity_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_shared<GraphRange>(device, nodeParams->bytesize, call.site());
  if (!range->address) return CUDA_ERROR_OUT_OF_MEMORY;
  nodeParams->dptr = range->address;
  return add(phGraphNode, hGraph, dependencies, numDependencies, AllocateWork{range}, call.site());
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  SPILLWAY_SIM_ENTER(cuGraphMemAllocNodeGetParams);
  const auto* work = work_of<AllocateWork>(hNode);
  if (!work || !params_out) return CUDA_ERROR_INVALID_VALUE;
  *params_out = {};
  params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params_out->poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = work->range->device->ordinal};
  params_out->bytesize = work->range->bytes;
  params_out->dptr = work->range->address;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                               size_t numDependencies, CUdeviceptr dptr) {
  SPILLWAY_SIM_ENTER(cuGraphAddMemFreeNode);
  if (!is_graph_memory(dptr)) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, numDependencies, FreeWork{dptr}, call.site());
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  SPILLWAY_SIM_ENTER(cuGraphMemFreeNodeGetParams);
  const auto* work = work_of<FreeWork>(hNode);
  if (!work || !dptr_out) return CUDA_ERROR_INVALID_VALUE;
  *dptr_out = work->address;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SPILLWAY_SIM_ENTER(cuGraphExecKernelNodeSetParams);
  if (!nodeParams || !(nodeParams->func || nodeParams->kern)) return CUDA_ERROR_INVALID_VALUE;
  return replace_work(hGraphExec, hNode, binary_work(*nodeParams));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext) {
  SPILLWAY_SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
  CopyWork work;
  if (const CUresult result = copy_work(copyParams, work); result != CUDA_SUCCESS) return result;
  return replace_work(hGraphExec, hNode, work);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  SPILLWAY_SIM_ENTER(cuGraphExecMemsetNodeSetParams);
  if (!memsetParams || !valid_fill(*memsetParams)) return CUDA_ERROR_INVALID_VALUE;
  return replace_work(hGraphExec, hNode, fill_work(*memsetParams));
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
  SPILLWAY_SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
  const Graph* child = find_graph(childGraph);
  return child ? replace_work(hGraphExec, hNode, ChildWork{child->clone()}) : CUDA_ERROR_INVALID_VALUE;
}
