// Threads that share the runtime, each with a device, a stream and memory of its own.
#include <thread>
#include <vector>

#include "tests/simulator/runtime/fixture.h"

extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                                       dim3*, int*);

namespace spillway::runtime_test {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 200;
char kernels[kThreads];

void work_on_one_device(int thread) {
  ASSERT_EQ(cudaSetDevice(thread % 2), cudaSuccess);
  __cudaRegisterFunction(nullptr, &kernels[thread], nullptr, "threads_kernel", -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (int round = 0; round < kRounds; ++round) {
    int value = thread * kRounds + round;
    int received = -1;
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kMiB), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(memory, &value, sizeof value, cudaMemcpyHostToDevice, stream), cudaSuccess);
    ASSERT_EQ(cudaLaunchKernel(&kernels[thread], dim3(1), dim3(1), nullptr, 0, stream), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(&received, memory, sizeof value, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(received, value);
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
    int device = -1;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    ASSERT_EQ(device, thread % 2);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work_on_one_device, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts().launches, static_cast<uint64_t>(kThreads) * kRounds);
}

}  // namespace
}  // namespace spillway::runtime_test
