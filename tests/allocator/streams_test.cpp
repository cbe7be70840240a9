// Streams that the program destroys: the driver is asked nothing about them any more, and what was free on
// them serves others when it is safe.
#include "allocator/streams/program_streams.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

constexpr uint64_t kBlockBytes = 8 * kMiB;

class EndingStream : public SimulatedDevice {
 protected:
  StreamId make() {
    CUstream stream = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return StreamId{reinterpret_cast<uint64_t>(stream)};
  }
  uint64_t charged() {
    SpillwaySimulatorUsage usage{};
    EXPECT_EQ(control->usage(0, &usage), CUDA_SUCCESS);
    return usage.charged_bytes;
  }
  void destroy(StreamId stream) {
    stream_ends(*allocator, stream);
    EXPECT_EQ(table.cuStreamDestroy(reinterpret_cast<CUstream>(stream)), CUDA_SUCCESS);
    check();
  }
};

TEST_F(EndingStream, LeavesItsFreeBlocksToTheNextOne) {
  for (int i = 0; i < 3; ++i) {
    const StreamId stream = make();
    const uint64_t block = get(kBlockBytes, stream);
    launch(stream, block, kBlockBytes);
    table.cuStreamSynchronize(reinterpret_cast<CUstream>(stream));
    put(block);
    destroy(stream);
    EXPECT_EQ(charged(), kBlockBytes) << i;
  }
}

TEST_F(EndingStream, LeavesThemOnlyWhenItsWorkIsOver) {
  const StreamId first = make();
  const uint64_t block = get(kBlockBytes, first);
  launch(first, block, kBlockBytes, 50'000);
  put(block);
  destroy(first);
  const StreamId second = new_stream();
  const uint64_t other = get(kBlockBytes, second);
  EXPECT_NE(other, block);
  launch(second, other, kBlockBytes);
  allocator->limit(kDevice, 3 * kBlockBytes);
  const uint64_t large = get(2 * kBlockBytes, second);
  ASSERT_EQ(large, 0u) << "no handler";
  EXPECT_EQ(allocator->empty_cache(kDevice), kBlockBytes) << "the device was waited for";
  EXPECT_NE(get(2 * kBlockBytes, second), 0u);
}

TEST_F(EndingStream, ABlockThatWasRecordedOnItIsFreeWhenTheDeviceIsPastIt) {
  const StreamId stream = make();
  const uint64_t block = get(kBlockBytes);
  EXPECT_EQ(allocator->record_stream(block, stream), Status::kOk);
  launch(stream, block, kBlockBytes, 50'000);
  destroy(stream);
  put(block);
  EXPECT_EQ(get(kBlockBytes), block);
  launch(StreamId{}, block, kBlockBytes);
}

TEST_F(EndingStream, ABlockOfItThatIsStillInUseStaysAndIsFreedLater) {
  const StreamId first = make();
  const uint64_t kept = get(kBlockBytes, first);
  destroy(first);
  const StreamId second = new_stream();
  EXPECT_NE(get(kBlockBytes, second), kept);
  put(kept);
  EXPECT_EQ(allocator->empty_cache(kDevice), kBlockBytes);
}

class Marks : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    allocator->limit(kDevice, 4 * kBlockBytes);
    asked_ = 0;
    ask_for_marks(*allocator, [] { ++asked_; });
  }
  static inline int asked_ = 0;
};

TEST_F(Marks, AreAskedForOnceWhenHalfOfTheLimitIsHeld) {
  for (const int asked : {0, 1, 1, 1}) {
    EXPECT_NE(get(kBlockBytes), 0u);
    EXPECT_EQ(asked_, asked);
  }
}

TEST_F(Marks, AreAskedForWhenARequestFails) {
  EXPECT_EQ(get(5 * kBlockBytes), 0u);
  EXPECT_EQ(asked_, 1);
}

TEST_F(Marks, AreLeftOutOnAStreamThatIsBeingCaptured) {
  get(kBlockBytes);
  const StreamId stream = new_stream();
  const auto handle = reinterpret_cast<CUstream>(stream);
  CUgraph graph = nullptr;
  const uint64_t recorded = control->calls("cuEventRecord");
  ASSERT_EQ(table.cuStreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  mark_progress(*allocator, stream);
  ASSERT_EQ(table.cuStreamEndCapture(handle, &graph), CUDA_SUCCESS);
  EXPECT_EQ(control->calls("cuEventRecord"), recorded);
  EXPECT_EQ(passed_marks(*allocator), 0u);
  mark_progress(*allocator, stream);
  table.cuCtxSynchronize();
  EXPECT_EQ(passed_marks(*allocator), 1u);
  table.cuGraphDestroy(graph);
}

TEST_F(Marks, AreLeftOutInAContextThatIsNotTheDevicesOwn) {
  get(kBlockBytes);
  CUcontext other = nullptr;
  CUdevice device = 0;
  ASSERT_EQ(table.cuDeviceGet(&device, 0), CUDA_SUCCESS);
  ASSERT_EQ(table.cuCtxCreate(&other, nullptr, 0, device), CUDA_SUCCESS);
  mark_progress(*allocator, StreamId{});
  EXPECT_EQ(table.cuCtxDestroy(other), CUDA_SUCCESS);
  table.cuCtxSynchronize();
  EXPECT_EQ(passed_marks(*allocator), 0u);
}

}  // namespace
}  // namespace spillway::testing
