// Stream capture and graphs: what becomes of captured work, what is refused, and the memory of graphs.
#include <gmock/gmock.h>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/simulator/driver_support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::HasSubstr;

constexpr uint64_t kLong = 1'000'000;  // ns of work

class Graphs {
 public:
  explicit Graphs(const Table& driver) : table(driver) {}
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream made = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent event() const {
    CUevent made = nullptr;
    EXPECT_EQ(table.cuEventCreate(&made, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    return made;
  }
  CUdeviceptr memory(size_t bytes = kPage) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  CUresult work(CUstream on, std::vector<SpillwayRange> ranges = {}, uint64_t ns = kLong) const {
    return table.simulator->submit(on, "work", ranges.data(), ranges.size(), ns, nullptr, nullptr);
  }
  void begin(CUstream on, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    EXPECT_EQ(table.cuStreamBeginCapture(on, mode), CUDA_SUCCESS);
  }
  CUgraph end(CUstream on) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(table.cuStreamEndCapture(on, &graph), CUDA_SUCCESS);
    return graph;
  }
  CUresult end_result(CUstream on) const {
    CUgraph graph = nullptr;
    const CUresult result = table.cuStreamEndCapture(on, &graph);
    EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
    return result;
  }
  CUstreamCaptureStatus status(CUstream on) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(table.cuStreamIsCapturing(on, &status), CUDA_SUCCESS);
    return status;
  }
  CUgraphExec executable(CUgraph graph, unsigned long long flags = 0) const {
    CUgraphExec made = nullptr;
    EXPECT_EQ(table.cuGraphInstantiateWithFlags(&made, graph, flags), CUDA_SUCCESS);
    return made;
  }
  CUgraph empty() const {
    CUgraph graph = nullptr;
    EXPECT_EQ(table.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    return graph;
  }
  size_t nodes(CUgraph graph) const {
    size_t count = 0;
    EXPECT_EQ(table.cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  size_t edges(CUgraph graph) const {
    size_t count = 0;
    EXPECT_EQ(table.cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  CUgraphNodeType type(CUgraph graph, size_t index) const {
    std::vector<CUgraphNode> found(nodes(graph));
    size_t count = found.size();
    EXPECT_EQ(table.cuGraphGetNodes(graph, found.data(), &count), CUDA_SUCCESS);
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(table.cuGraphNodeGetType(found.at(index), &type), CUDA_SUCCESS);
    return type;
  }

  const Table& table;
};

void with_graphs(const std::function<void(const Graphs&)>& body, const Settings& settings = {}) {
  in_process(settings, [&] { body(Graphs(started_driver())); });
}

TEST(Capture, work_runs_at_each_launch_and_not_at_capture) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUdeviceptr memory = g.memory();
    g.begin(stream);
    EXPECT_EQ(g.status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(g.work(stream, {{memory, kPage, 1}}), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemsetD8Async(memory, 1, kPage, stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemcpyDtoDAsync(memory, memory + kMiB, kMiB, stream), CUDA_SUCCESS);
    const CUgraph graph = g.end(stream);
    EXPECT_EQ(g.status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(counts(g.table).launches, 0u);
    EXPECT_EQ(counts(g.table).copies, 0u);
    EXPECT_EQ(g.nodes(graph), 3u);
    EXPECT_EQ(g.edges(graph), 2u);
    EXPECT_EQ(g.type(graph, 0), CU_GRAPH_NODE_TYPE_KERNEL);
    EXPECT_EQ(g.type(graph, 1), CU_GRAPH_NODE_TYPE_MEMSET);
    EXPECT_EQ(g.type(graph, 2), CU_GRAPH_NODE_TYPE_MEMCPY);
    const CUgraphExec exec = g.executable(graph);
    EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_SUCCESS) << "the executable is a copy";
    const uint64_t before = counts(g.table).virtual_ns;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(g.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_GE(counts(g.table).virtual_ns - before, 3 * kLong);
    EXPECT_EQ(counts(g.table).launches, 3u);
    EXPECT_EQ(counts(g.table).copies, 3u);
    EXPECT_EQ(g.table.cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(g.table).violations, 0u);
  });
}

TEST(Capture, memory_that_is_gone_at_the_launch_is_a_violation) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUdeviceptr memory = g.memory();
    g.begin(stream);
    EXPECT_EQ(g.work(stream, {{memory, kPage, 1}}), CUDA_SUCCESS);
    const CUgraphExec exec = g.executable(g.end(stream));
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).violations, 0u);
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(counts(g.table).violations, 1u);
    EXPECT_THAT(text(g.table.simulator->violations),
                AllOf(HasSubstr("'work'"), HasSubstr("; freed at "), HasSubstr("in a graph, captured at ")));
  });
}

TEST(Capture, memory_is_in_use_until_the_graph_is_done) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUmemAllocationProp prop = device_page();
    const CUmemAccessDesc access = read_write();
    CUmemGenericAllocationHandle page = 0;
    CUdeviceptr address = 0;
    EXPECT_EQ(g.table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemAddressReserve(&address, kPage, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemMap(address, kPage, 0, page, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
    g.begin(stream);
    EXPECT_EQ(g.work(stream, {{address, kPage, 1}}), CUDA_SUCCESS);
    const CUgraphExec exec = g.executable(g.end(stream));
    EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuMemUnmap(address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(counts(g.table).violations, 1u) << "unmapped under a running graph";
  });
}

TEST(Capture, events_fork_and_join_other_streams) {
  with_graphs([](const Graphs& g) {
    const CUstream origin = g.stream(), side = g.stream();
    const CUevent fork = g.event(), join = g.event();
    g.begin(origin);
    EXPECT_EQ(g.work(origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuEventRecord(fork, origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(g.work(side), CUDA_SUCCESS);
    EXPECT_EQ(g.work(origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuEventRecord(join, side), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamWaitEvent(origin, join, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.work(origin), CUDA_SUCCESS);
    const CUgraph graph = g.end(origin);
    EXPECT_EQ(g.status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(g.nodes(graph), 4u);
    EXPECT_EQ(g.edges(graph), 4u);
    const CUgraphExec exec = g.executable(graph);
    EXPECT_EQ(g.table.cuStreamSynchronize(origin), CUDA_SUCCESS);
    const uint64_t before = counts(g.table).virtual_ns;
    EXPECT_EQ(g.table.cuGraphLaunch(exec, origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamSynchronize(origin), CUDA_SUCCESS);
    const uint64_t took = counts(g.table).virtual_ns - before;
    EXPECT_GE(took, 3 * kLong);
    EXPECT_LT(took, 4 * kLong) << "the branches run side by side";
  });
}

TEST(Capture, a_fork_that_is_not_joined_is_refused) {
  with_graphs([](const Graphs& g) {
    const CUstream origin = g.stream(), side = g.stream();
    const CUevent fork = g.event();
    g.begin(origin);
    EXPECT_EQ(g.table.cuEventRecord(fork, origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.work(side), CUDA_SUCCESS);
    EXPECT_EQ(g.end_result(origin), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT_EQ(g.status(origin), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(g.status(side), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(g.work(side), CUDA_SUCCESS) << "the stream works again";
    EXPECT_EQ(counts(g.table).launches, 1u);
  });
}

TEST(Capture, dependencies_across_its_boundary_are_refused) {
  with_graphs([](const Graphs& g) {
    const CUstream first = g.stream(), second = g.stream();
    const CUevent outside = g.event(), inside = g.event(), never = g.event();
    EXPECT_EQ(g.table.cuEventRecord(outside, second), CUDA_SUCCESS);
    g.begin(first);
    EXPECT_EQ(g.table.cuStreamWaitEvent(first, never, 0), CUDA_SUCCESS) << "nothing to wait for";
    EXPECT_EQ(g.table.cuStreamWaitEvent(first, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    EXPECT_EQ(g.work(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(g.end_result(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    g.begin(first);
    g.begin(second);
    EXPECT_EQ(g.table.cuEventRecord(inside, first), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamWaitEvent(second, inside, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    EXPECT_EQ(g.end_result(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(g.end_result(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(g.table.cuStreamWaitEvent(second, inside, 0), CUDA_ERROR_CAPTURED_EVENT);
  });
}

TEST(Capture, the_host_can_not_wait_for_it) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    const CUevent event = g.event();
    const auto each = [&](CUresult expected, const std::function<CUresult()>& call) {
      g.begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      EXPECT_EQ(g.table.cuEventRecord(event, stream), CUDA_SUCCESS);
      EXPECT_EQ(call(), expected);
      EXPECT_EQ(g.status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
      EXPECT_EQ(g.end_result(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    };
    const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    each(unsupported, [&] { return g.table.cuStreamSynchronize(stream); });
    each(unsupported, [&] { return g.table.cuStreamQuery(stream); });
    each(unsupported, [&] { return g.table.cuCtxSynchronize(); });
    each(CUDA_ERROR_CAPTURED_EVENT, [&] { return g.table.cuEventQuery(event); });
    each(CUDA_ERROR_CAPTURED_EVENT, [&] { return g.table.cuEventSynchronize(event); });
    each(unsupported,
         [&] { return g.table.cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 0); });
  });
}

TEST(Capture, its_mode_says_who_may_call_what_might_wait) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    CUcontext context = nullptr;
    EXPECT_EQ(g.table.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    // What cuMemAlloc answers in this thread and in another, and what becomes of the capture.
    const auto allocate = [&](CUstreamCaptureMode capture, bool in_another, CUstreamCaptureMode thread) {
      g.begin(stream, capture);
      CUresult result = CUDA_SUCCESS;
      const auto body = [&] {
        EXPECT_EQ(g.table.cuCtxSetCurrent(context), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuThreadExchangeStreamCaptureMode(&thread), CUDA_SUCCESS);
        CUdeviceptr memory = 0;
        result = g.table.cuMemAlloc(&memory, 1);
        EXPECT_EQ(g.table.cuThreadExchangeStreamCaptureMode(&thread), CUDA_SUCCESS);
      };
      if (in_another)
        std::thread(body).join();
      else
        body();
      EXPECT_EQ(g.end_result(stream),
                result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      return result;
    };
    const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
               relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(allocate(global, false, global), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(allocate(global, true, global), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(allocate(global, true, local), CUDA_SUCCESS);
    EXPECT_EQ(allocate(global, false, local), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(allocate(global, false, relaxed), CUDA_SUCCESS);
    EXPECT_EQ(allocate(local, false, global), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(allocate(local, true, global), CUDA_SUCCESS);
    EXPECT_EQ(allocate(relaxed, false, global), CUDA_SUCCESS);
    EXPECT_EQ(allocate(relaxed, true, global), CUDA_SUCCESS);
  });
}

TEST(Capture, begins_and_ends_where_it_may) {
  with_graphs([](const Graphs& g) {
    const CUstream origin = g.stream(), side = g.stream();
    const CUevent fork = g.event();
    const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    EXPECT_EQ(g.table.cuStreamBeginCapture(nullptr, global), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(g.end_result(origin), CUDA_ERROR_ILLEGAL_STATE);
    g.begin(origin);
    EXPECT_EQ(g.table.cuStreamBeginCapture(origin, global), CUDA_ERROR_ILLEGAL_STATE);
    std::thread([&] { EXPECT_EQ(g.end_result(origin), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD); }).join();
    EXPECT_EQ(g.table.cuEventRecord(fork, origin), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(g.end_result(side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT_EQ(g.end_result(origin), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    g.begin(origin);
    EXPECT_EQ(g.table.cuStreamDestroy(origin), CUDA_SUCCESS);
    EXPECT_EQ(g.end_result(origin), CUDA_ERROR_INVALID_HANDLE);
    g.begin(side);
    EXPECT_EQ(g.end_result(side), CUDA_SUCCESS) << "the destroyed stream's capture is in nobody's way";
  });
}

TEST(Capture, the_default_stream_would_wait_for_a_blocking_one) {
  with_graphs([](const Graphs& g) {
    const CUstream blocking = g.stream(CU_STREAM_DEFAULT), other = g.stream();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    g.begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(g.table.cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(g.status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "asking does no harm";
    EXPECT_EQ(g.work(nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(g.end_result(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    g.begin(other);
    EXPECT_EQ(g.work(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(g.end_result(other), CUDA_SUCCESS);
  });
}

TEST(Capture, tells_its_graph_and_takes_nodes_from_the_program) {
  with_graphs([](const Graphs& g) {
    const CUstream stream = g.stream();
    g.begin(stream);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* tips = nullptr;
    size_t count = 0;
    EXPECT_EQ(g.table.cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &tips, nullptr, &count),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_GT(id, 0u);
    ASSERT_EQ(count, 1u);
    CUgraphNode added = nullptr;
    EXPECT_EQ(g.table.cuGraphAddEmptyNode(&added, graph, tips, count), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuStreamUpdateCaptureDependencies_v2(stream, &added, nullptr, 1,
                                                           CU_STREAM_SET_CAPTURE_DEPENDENCIES),
              CUDA_SUCCESS);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE) << "it is being captured";
    EXPECT_EQ(g.end(stream), graph);
    EXPECT_EQ(g.nodes(graph), 3u);
    EXPECT_EQ(g.edges(graph), 2u);
  });
}

TEST(Capture, is_refused_where_values_are_computed) {
  with_graphs(
      [](const Graphs& g) {
        testing::internal::CaptureStderr();
        EXPECT_EQ(g.table.cuStreamBeginCapture(g.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL),
                  CUDA_ERROR_NOT_SUPPORTED);
        EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("refused in computing mode"));
      },
      {{"SPILLWAY_SIM_VALUES", "compute"}});
}

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

TEST(Graph, can_be_drawn) {
  with_graphs([](const Graphs& g) {
    const std::string path = "/tmp/spillway-graph-" + std::to_string(getpid()) + ".dot";
    const CUstream stream = g.stream();
    g.begin(stream);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    EXPECT_EQ(g.work(stream), CUDA_SUCCESS);
    EXPECT_EQ(g.table.cuGraphDebugDotPrint(g.end(stream), path.c_str(), 0), CUDA_SUCCESS);
    std::stringstream drawn;
    drawn << std::ifstream(path).rdbuf();
    EXPECT_THAT(drawn.str(), AllOf(HasSubstr("label=\"1: work\""), HasSubstr("node_1 -> node_2")));
    std::remove(path.c_str());
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
