// Error names and the last error of a thread.
#include <thread>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

TEST_F(Runtime, TextsOfErrorsAreTheRuntimesOwn) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(Runtime, LastErrorStaysUntilItIsRead) {
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, 2 * kCapacity), cudaErrorMemoryAllocation);
  int device = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Runtime, LastErrorIsTheThreadsOwn) {
  EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(Runtime, WhatIsNotReadyIsALastErrorToo) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(control().submit(nullptr, "long", nullptr, 0, 1'000'000, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

// In a thread of its own: nothing clears the error again.
TEST_F(Runtime, StickyErrorIsNotCleared) {
  std::thread([] {
    void* pointer = nullptr;
    control().fail_call(1, "cuMemAlloc", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cudaMalloc(&pointer, kMiB), cudaErrorIllegalAddress);
    EXPECT_EQ(counts().injected_failures, 1u);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  }).join();
}

TEST_F(Runtime, RefusedCallsSetTheLastError) {
  cudaIpcMemHandle_t handle;
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
}

TEST_F(Runtime, WhatIsNotSimulatedSaysItsNameOnce) {
  void* pointer = nullptr;
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemRangeGetAttribute(&pointer, sizeof pointer, cudaMemRangeAttributeReadMostly, &pointer, 1),
            cudaErrorNotSupported);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
  EXPECT_EQ(cudaMemRangeGetAttribute(&pointer, sizeof pointer, cudaMemRangeAttributeReadMostly, &pointer, 1),
            cudaErrorNotSupported);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "spillway simulator: cudaMemRangeGetAttribute is not simulated: returning cudaErrorNotSupported\n");
}

}  // namespace
}  // namespace spillway::runtime_test
