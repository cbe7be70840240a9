// Graphs: the order of their nodes, and their memory.
#include <gmock/gmock.h>
#include <fstream>
#include <sstream>

#include "tests/simulator/driver/graphs.h"

namespace spillway::test {
namespace {

using testing::HasSubstr;

TEST(Graph, nodes_run_in_the_order_of_their_dependencies) {
  with_graphs(
      [](const Graphs& g) {
        const CUdeviceptr memory = g.memory();
        const CUgraph graph = g.empty();
        unsigned char host[4] = {};
        std::pair<unsigned char*, int> seen = {host, 0};
        CUDA_MEMCPY3D copy = {};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = memory;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = host;
        copy.WidthInBytes = 4;
        copy.Height = copy.Depth = 1;
        const CUDA_MEMSET_NODE_PARAMS fill = {
            .dst = memory, .pitch = 0, .value = 7, .elementSize = 1, .width = 4, .height = 1};
        const CUDA_HOST_NODE_PARAMS look = {.fn =
                                                [](void* data) {
                                                  auto* pair =
                                                      static_cast<std::pair<unsigned char*, int>*>(data);
                                                  pair->second = pair->first[3];
                                                },
                                            .userData = &seen};
        // Added in the wrong order: the edges decide.
        CUgraphNode host_node = nullptr, copy_node = nullptr, fill_node = nullptr;
        EXPECT_EQ(g.table.cuGraphAddHostNode(&host_node, graph, nullptr, 0, &look), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphAddMemcpyNode(&copy_node, graph, nullptr, 0, &copy, nullptr), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphAddMemsetNode(&fill_node, graph, nullptr, 0, &fill, nullptr), CUDA_SUCCESS);
        const CUgraphNode from[] = {fill_node, copy_node}, to[] = {copy_node, host_node};
        EXPECT_EQ(g.table.cuGraphAddDependencies_v2(graph, from, to, nullptr, 2), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphLaunch(g.executable(graph), nullptr), CUDA_SUCCESS);
        EXPECT_EQ(seen.second, 7);
        EXPECT_EQ(g.table.cuGraphAddDependencies_v2(graph, &host_node, &fill_node, nullptr, 1), CUDA_SUCCESS);
        CUgraphExec circle = nullptr;
        EXPECT_EQ(g.table.cuGraphInstantiateWithFlags(&circle, graph, 0), CUDA_ERROR_INVALID_VALUE);
      },
      {{"SPILLWAY_SIM_VALUES", "compute"}});
}

TEST(Graph, a_child_runs_where_its_node_stands) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    g.begin(stream);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    const CUgraph child = g.end(stream), parent = g.empty();
    CUgraphNode first = nullptr, second = nullptr;
    EXPECT_EQ(g.table.cuGraphAddChildGraphNode(&first, parent, nullptr, 0, child), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphAddChildGraphNode(&second, parent, &first, 1, child), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDestroy(child), CUDA_SUCCESS);
    const CUgraphExec exec = g.executable(parent);
    g.begin(stream);
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    const CUgraph nested = g.end(stream);
    EXPECT_EQ(g.type(nested, 0), CU_GRAPH_NODE_TYPE_GRAPH) << "a launch in a capture is a child";
    const uint64_t before = counts(g.table).virtual_ns;
    EXPECT_EQ(g.table.cuGraphLaunch(g.executable(nested), stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).launches, 4u);
    EXPECT_GE(counts(g.table).virtual_ns - before, 4 * kLong);
  });
}

TEST(Graph, its_memory_comes_with_the_launch_and_goes_with_the_free) {
  with_graphs(
      [](const Graphs& g) {
        const CUstream stream = g.stream();
        g.begin(stream);
        CUdeviceptr first = 0, second = 0;
        EXPECT_EQ(g.table.cuMemAllocAsync(&first, 4 * kPage, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.work(stream, {{first, 4 * kPage, 1}}), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemFreeAsync(first, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemAllocAsync(&second, kPage, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.work(stream, {{second, kPage, 1}}), CUDA_SUCCESS);
        const CUgraph graph = g.end(stream);
        EXPECT_EQ(counts(g.table).live_pages_bytes, 0u) << "addresses cost nothing";
        const CUgraphExec exec = g.executable(graph);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
        EXPECT_EQ(counts(g.table).live_pages_bytes, kPage);
        EXPECT_EQ(counts(g.table).peak_pages_bytes, 4 * kPage);
        cuuint64_t used = 0;
        EXPECT_EQ(g.table.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used),
                  CUDA_SUCCESS);
        EXPECT_EQ(used, kPage);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE) << "the second is not freed";
        EXPECT_EQ(g.table.cuMemFreeAsync(second, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
        const CUgraphExec freeing = g.executable(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        EXPECT_EQ(g.table.cuGraphLaunch(freeing, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphLaunch(freeing, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphExecDestroy(exec), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphExecDestroy(freeing), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_SUCCESS);
        EXPECT_EQ(counts(g.table).live_pages_bytes, kPage) << "the program's until it frees it";
        EXPECT_EQ(g.table.cuMemFree(second), CUDA_SUCCESS);
        EXPECT_EQ(counts(g.table).live_pages_bytes, 0u);
        EXPECT_EQ(counts(g.table).violations, 0u);
      },
      {{"SPILLWAY_SIM_CAPACITY", "8MiB"}});
}

TEST(Graph, what_it_frees_is_the_devices_graphs_until_it_is_trimmed) {
  with_graphs(
      [](const Graphs& g) {
        const auto told = [&](CUgraphMem_attribute which) {
          cuuint64_t bytes = 0;
          EXPECT_EQ(g.table.cuDeviceGetGraphMemAttribute(0, which, &bytes), CUDA_SUCCESS);
          return bytes;
        };
        const CUstream stream = g.stream();
        g.begin(stream);
        CUdeviceptr memory = 0, other = 0;
        EXPECT_EQ(g.table.cuMemAllocAsync(&memory, 3 * kPage, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
        const CUgraphExec exec = g.executable(g.end(stream));
        EXPECT_EQ(told(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
        for (int launch = 0; launch < 2; ++launch) {
          EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
          EXPECT_EQ(told(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 3 * kPage) << "the second took the first's";
          EXPECT_EQ(told(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0u);
        }
        EXPECT_EQ(g.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemAlloc(&other, 2 * kPage), CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(g.table.cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
        EXPECT_EQ(told(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
        EXPECT_EQ(told(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 3 * kPage);
        EXPECT_EQ(g.table.cuMemAlloc(&other, 2 * kPage), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemFree(other), CUDA_SUCCESS);
        EXPECT_EQ(counts(g.table).violations, 0u);
      },
      {{"SPILLWAY_SIM_CAPACITY", "8MiB"}});
}

// As cuMemFreeAsync and cuGraphAddMemFreeNode are documented.
TEST(Graph, frees_only_what_a_graph_has_allocated) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    CUdeviceptr outside = 0;
    EXPECT_EQ(g.table.cuMemAllocAsync(&outside, kPage, stream), CUDA_SUCCESS);
    g.begin(stream);
    EXPECT_EQ(g.table.cuMemFreeAsync(outside, stream), CUDA_ERROR_INVALID_VALUE);
    const CUgraph graph = g.end(stream);
    CUgraphNode node = nullptr;
    EXPECT_EQ(g.table.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, outside), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(g.table).live_pages_bytes, kPage);
    EXPECT_EQ(g.table.cuMemFreeAsync(outside, stream), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).violations, 0u);
  });
}

TEST(Graph, a_launch_without_room_for_its_memory_fails) {
  with_graphs(
      [](const Graphs& g) {
        const CUstream stream = g.stream();
        g.begin(stream);
        CUdeviceptr memory = 0;
        EXPECT_EQ(g.table.cuMemAllocAsync(&memory, 3 * kPage, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
        const CUgraphExec exec = g.executable(g.end(stream));
        const CUdeviceptr other = g.memory(2 * kPage);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(g.table.cuMemFree(other), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
      },
      {{"SPILLWAY_SIM_CAPACITY", "8MiB"}});
}

TEST(Graph, an_executable_takes_new_parameters_of_the_same_shape) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUdeviceptr first = g.memory(), second = g.memory();
    const auto captured = [&](CUdeviceptr memory, int copies) {
      g.begin(stream);
      for (int i = 0; i < copies; ++i)
        EXPECT_EQ(g.table.cuMemsetD8Async(memory, 0, kPage, stream), CUDA_SUCCESS);
      return g.end(stream);
    };
    const CUgraphExec exec = g.executable(captured(first, 1));
    CUgraphExecUpdateResultInfo info = {};
    EXPECT_EQ(g.table.cuGraphExecUpdate_v2(exec, captured(second, 2), &info),
              CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_EQ(g.table.cuGraphExecUpdate_v2(exec, captured(second, 1), &info), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemFree(first), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).violations, 0u);
  });
}

CUgraphNodeParams fill_of(CUdeviceptr memory) {
  CUgraphNodeParams node = {};
  node.type = CU_GRAPH_NODE_TYPE_MEMSET;
  node.memset = {
      .dst = memory, .pitch = 0, .value = 0, .elementSize = 1, .width = kPage, .height = 1, .ctx = nullptr};
  return node;
}

TEST(Graph, an_executable_takes_new_parameters_node_by_node) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUdeviceptr first = g.memory(), second = g.memory();
    CUgraph graph = nullptr;
    CUgraphNode fill = nullptr, nothing = nullptr;
    CUgraphNodeParams node = fill_of(first), empty = {}, condition = {};
    EXPECT_EQ(g.table.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphAddNode_v2(&fill, graph, nullptr, nullptr, 0, &node), CUDA_SUCCESS);
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(g.table.cuGraphAddNode_v2(&nothing, graph, &fill, nullptr, 1, &empty), CUDA_SUCCESS);
    condition.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    EXPECT_EQ(g.table.cuGraphAddNode_v2(&nothing, graph, nullptr, nullptr, 0, &condition),
              CUDA_ERROR_NOT_SUPPORTED);
    const CUgraphExec exec = g.executable(graph);
    const CUDA_MEMSET_NODE_PARAMS other = {
        .dst = second, .pitch = 0, .value = 0, .elementSize = 1, .width = kPage, .height = 1};
    EXPECT_EQ(g.table.cuGraphExecMemsetNodeSetParams(exec, nothing, &other, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphExecMemsetNodeSetParams(exec, fill, &other, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemFree(first), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).violations, 0u);
  });
}

TEST(Graph, can_be_drawn) {
  with_graphs([](const Graphs& g) {
    const std::string path = "/tmp/spillway-graph-" + std::to_string(getpid()) + ".dot";
    const CUstream stream = g.stream();
    g.begin(stream);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    const CUgraph graph = g.end(stream);
    unsigned id = 0;
    EXPECT_EQ(g.table.cuGraphGetId(graph, &id), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDebugDotPrint(graph, path.c_str(), 0), CUDA_SUCCESS);
    std::stringstream drawn;
    drawn << std::ifstream(path).rdbuf();
    EXPECT_THAT(drawn.str(), AllOf(HasSubstr("digraph graph_" + std::to_string(id) + " {"),
                                   HasSubstr("label=\"1: work\""), HasSubstr("node_1 -> node_2")));
    std::remove(path.c_str());
  });
}

TEST(Graph, its_nodes_and_copies_are_told_apart_by_their_ids) {
  with_graphs([](const Graphs& g) {
    const CUgraph graph = g.empty(), other = g.empty();
    CUgraphNode node = nullptr, another = nullptr;
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&node, graph, nullptr, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&another, other, nullptr, 0), CUDA_SUCCESS);
    CUgraph containing = nullptr;
    EXPECT_EQ(g.table.cuGraphNodeGetContainingGraph(node, &containing), CUDA_SUCCESS);
    EXPECT_EQ(containing, graph);
    unsigned first = 0, second = 0, local = 0;
    EXPECT_EQ(g.table.cuGraphGetId(graph, &first), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphGetId(other, &second), CUDA_SUCCESS);
    EXPECT_NE(first, second);
    EXPECT_EQ(g.table.cuGraphNodeGetLocalId(node, &local), CUDA_SUCCESS);
    EXPECT_EQ(local, 1u);
    unsigned long long mine = 0, theirs = 0;
    EXPECT_EQ(g.table.cuGraphNodeGetToolsId(node, &mine), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphNodeGetToolsId(another, &theirs), CUDA_SUCCESS);
    EXPECT_NE(mine, theirs);
    CUgraphExec exec = nullptr;
    EXPECT_EQ(g.table.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphExecGetId(exec, &second), CUDA_SUCCESS);
    EXPECT_NE(second, first) << "an executable is a copy";
    EXPECT_EQ(g.table.cuGraphExecGetId(nullptr, &second), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Graph, handles_of_other_things_are_refused) {
  with_graphs([](const Graphs& g) {
    size_t count = 0;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    const CUgraph graph = g.empty(), other = g.empty();
    EXPECT_EQ(g.table.cuGraphGetNodes(nullptr, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphInstantiateWithFlags(&exec, reinterpret_cast<CUgraph>(&count), 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphInstantiateWithFlags(&exec, graph, 1ull << 40), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&node, other, nullptr, 0), CUDA_SUCCESS);
    CUgraphNode mine = nullptr;
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&mine, graph, &node, 1), CUDA_ERROR_INVALID_VALUE)
        << "a dependency of another graph";
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&mine, graph, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphDestroyNode(node), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace spillway::test
