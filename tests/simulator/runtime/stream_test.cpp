// Streams, events and host functions.
#include <cstring>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

TEST_F(Runtime, EventsMeasureTheVirtualClock) {
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  ASSERT_EQ(control().submit(stream, "work", nullptr, 0, 3'000'000, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  float milliseconds = 0;
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 3.0f);
  EXPECT_LT(milliseconds, 4.0f);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

TEST_F(Runtime, AStreamWaitsForAnEventOfAnother) {
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(control().submit(first, "work", nullptr, 0, 1'000'000, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(second), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(first), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Runtime, LegacyAndPerThreadHandlesAreStreams) {
  for (cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    EXPECT_EQ(control().submit(stream, "work", nullptr, 0, 0, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  }
}

TEST_F(Runtime, CallbacksRunOnceInTheOrderOfTheStream) {
  struct Seen {
    int calls = 0;
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
  } seen;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const auto callback = [](cudaStream_t on, cudaError_t status, void* argument) {
    auto* found = static_cast<Seen*>(argument);
    *found = {found->calls + 1, on, status};
  };
  ASSERT_EQ(cudaStreamAddCallback(stream, callback, &seen, 0), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream, [](void* argument) { static_cast<Seen*>(argument)->calls += 10; }, &seen),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(seen.calls, 11);
  EXPECT_EQ(seen.stream, stream);
  EXPECT_EQ(seen.status, cudaSuccess);
  EXPECT_EQ(cudaStreamAddCallback(stream, nullptr, &seen, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, PrioritiesAreTheDevices) {
  int least = -1;
  int greatest = 1;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LE(greatest, least);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), cudaSuccess);
  int priority = 1;
  ASSERT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, CaptureModeIsExchanged) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
}

// Fills 16 bytes with fives and counts its launches.
struct Step {
  void* memory = nullptr;
  int calls = 0;
  static void count(void* step) { ++static_cast<Step*>(step)->calls; }
};

void launch_twice(cudaGraph_t graph, cudaStream_t stream, Step& step) {
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(step.calls, 0);
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(step.calls, 2);
  unsigned char byte = 0;
  EXPECT_EQ(cudaMemcpy(&byte, static_cast<char*>(step.memory) + 15, 1, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(byte, 5);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(step.memory), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, ACapturedStepRunsAtEachLaunch) {
  cudaStream_t stream = nullptr;
  Step step;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&step.memory, 16), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(step.memory, 5, 16, stream), cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(stream, &Step::count, &step), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  launch_twice(graph, stream, step);
}

TEST_F(Runtime, AGraphMadeByHandRunsAtEachLaunch) {
  cudaStream_t stream = nullptr;
  Step step;
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t filled = nullptr;
  cudaGraphNode_t counted = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&step.memory, 16), cudaSuccess);
  cudaMemsetParams fill;
  std::memset(&fill, 0, sizeof fill);
  fill.dst = step.memory;
  fill.value = 5;
  fill.elementSize = 1;
  fill.width = 16;
  fill.height = 1;
  const cudaHostNodeParams count = {&Step::count, &step};
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill), cudaSuccess);
  ASSERT_EQ(cudaGraphAddHostNode(&counted, graph, &filled, 1, &count), cudaSuccess);
  launch_twice(graph, stream, step);
}

}  // namespace
}  // namespace spillway::runtime_test
