// Stream capture: what becomes of captured work, and what is refused.
#include <algorithm>

#include <gmock/gmock.h>
#include <thread>

#include "tests/simulator/driver/graphs.h"

namespace spillway::test {
namespace {

using testing::HasSubstr;

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

TEST(Capture, work_that_is_computed_elsewhere_is_done_at_each_launch_and_released_with_the_last_graph) {
  with_graphs(
      [](const Graphs& g) {
        struct Counts {
          int work = 0, released = 0;
        } counts;
        const auto work = [](void* argument) { return ++static_cast<Counts*>(argument)->work == 3 ? 1 : 0; };
        const auto release = [](void* argument) { ++static_cast<Counts*>(argument)->released; };
        const auto capture = [&](CUstream on) {
          return g.table.simulator->capture(on, "work", nullptr, 0, kLong, work, release, &counts);
        };
        const CUstream stream = g.stream();
        EXPECT_EQ(capture(stream), CUDA_ERROR_ILLEGAL_STATE) << "nothing is captured";
        EXPECT_EQ(g.table.simulator->capturing(nullptr), 0);
        g.begin(stream);
        EXPECT_EQ(g.table.simulator->capturing(nullptr), 1);
        EXPECT_EQ(g.table.simulator->capturing(stream), 1);
        EXPECT_EQ(g.table.simulator->capturing(g.stream()), 0);
        EXPECT_EQ(capture(stream), CUDA_SUCCESS);
        const CUgraph graph = g.end(stream);
        const CUgraphExec exec = g.executable(graph);
        EXPECT_EQ(counts.work, 0);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
        EXPECT_EQ(counts.work, 2);
        EXPECT_EQ(g.table.cuGraphLaunch(exec, stream), CUDA_ERROR_LAUNCH_FAILED) << "it could not be done";
        EXPECT_EQ(g.table.cuGraphDestroy(graph), CUDA_SUCCESS);
        EXPECT_EQ(counts.released, 0);
        EXPECT_EQ(g.table.cuGraphExecDestroy(exec), CUDA_SUCCESS);
        EXPECT_EQ(counts.released, 1);
      },
      {{"SPILLWAY_SIM_VALUES", "compute"}});
}

TEST(Capture, bytes_that_are_written_ahead_are_as_before_when_it_ends) {
  with_graphs(
      [](const Graphs& g) {
        const SpillwaySimulatorControl& control = *g.table.simulator;
        const CUdeviceptr memory = g.memory();
        EXPECT_EQ(g.table.cuMemsetD8(memory, 1, kPage), CUDA_SUCCESS);
        auto* bytes = reinterpret_cast<char*>(memory + static_cast<CUdeviceptr>(control.alias_offset()));
        const SpillwayRange written{memory, 16, 1}, part{memory + 8, 16, 1}, read{memory + 64, 1, 0};
        const CUstream stream = g.stream();
        EXPECT_EQ(control.preserve(stream, &written, 1), CUDA_ERROR_ILLEGAL_STATE) << "nothing is captured";
        g.begin(stream);
        EXPECT_EQ(control.preserve(stream, &written, 1), CUDA_SUCCESS);
        std::fill_n(bytes, 16, '\2');
        EXPECT_EQ(control.preserve(stream, &part, 1), CUDA_SUCCESS);
        std::fill_n(bytes + 8, 16, '\3');
        EXPECT_EQ(control.preserve(stream, &read, 1), CUDA_SUCCESS);
        bytes[64] = 4;
        EXPECT_EQ(bytes[0], 2) << "what comes behind finds it";
        g.end(stream);
        EXPECT_EQ(std::count(bytes, bytes + 24, '\1'), 24);
        EXPECT_EQ(bytes[64], 4) << "it was said to be read only";
      },
      {{"SPILLWAY_SIM_VALUES", "compute"}});
}

}  // namespace
}  // namespace spillway::test
