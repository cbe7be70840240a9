// cuGraphAddNode: a node of any kind, by the function for its kind.
#include <cstdio>

#include "simulator/driver/entry/call.h"

using spillway::simulator::OuterSite;

namespace {

CUDA_KERNEL_NODE_PARAMS kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3& node) {
  return {.func = node.func,
          .gridDimX = node.gridDimX,
          .gridDimY = node.gridDimY,
          .gridDimZ = node.gridDimZ,
          .blockDimX = node.blockDimX,
          .blockDimY = node.blockDimY,
          .blockDimZ = node.blockDimZ,
          .sharedMemBytes = node.sharedMemBytes,
          .kernelParams = node.kernelParams,
          .extra = node.extra,
          .kern = node.kern,
          .ctx = node.ctx};
}

CUDA_MEMSET_NODE_PARAMS fill_of(const CUDA_MEMSET_NODE_PARAMS_v2& node) {
  return {.dst = node.dst,
          .pitch = node.pitch,
          .value = node.value,
          .elementSize = node.elementSize,
          .width = node.width,
          .height = node.height};
}

CUresult add_allocation(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                        CUDA_MEM_ALLOC_NODE_PARAMS_v2& node) {
  CUDA_MEM_ALLOC_NODE_PARAMS old = {.poolProps = node.poolProps,
                                    .accessDescs = node.accessDescs,
                                    .accessDescCount = node.accessDescCount,
                                    .bytesize = node.bytesize,
                                    .dptr = 0};
  const CUresult result = cuGraphAddMemAllocNode(out, graph, before, count, &old);
  node.dptr = old.dptr;
  return result;
}

CUresult refuse(CUgraphNodeType type) {
  static bool said = false;
  if (!said)
    std::fprintf(stderr, "spillway simulator: cuGraphAddNode: nodes of type %d are not simulated\n", type);
  said = true;
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, const CUgraphEdgeData*,
                           size_t count, CUgraphNodeParams* node) {
  const OuterSite outer(SPILLWAY_SIM_CALLER);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(node->kernel);
      return cuGraphAddKernelNode_v2(out, graph, before, count, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphAddMemcpyNode(out, graph, before, count, &node->memcpy.copyParams, node->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS fill = fill_of(node->memset);
      return cuGraphAddMemsetNode(out, graph, before, count, &fill, node->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = {.fn = node->host.fn, .userData = node->host.userData};
      return cuGraphAddHostNode(out, graph, before, count, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return cuGraphAddChildGraphNode(out, graph, before, count, node->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(out, graph, before, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphAddEventWaitNode(out, graph, before, count, node->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphAddEventRecordNode(out, graph, before, count, node->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_allocation(out, graph, before, count, node->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphAddMemFreeNode(out, graph, before, count, node->free.dptr);
    default:
      return refuse(node->type);
  }
}
