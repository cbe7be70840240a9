// Devices, their properties and peers.
#include <cuda.h>

#include <cstring>
#include <thread>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

TEST_F(Runtime, CountsTheDevices) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaGetDeviceCount(nullptr), cudaErrorInvalidValue);
}

TEST_F(Runtime, PropertiesAreTheDriversAnswers) {
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_GT(std::strlen(properties.name), 0u);
  EXPECT_EQ(properties.totalGlobalMem, kCapacity);
  EXPECT_EQ(properties.major, 8);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.maxThreadsPerBlock, 1024);
  EXPECT_GT(properties.multiProcessorCount, 0);
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 1), cudaSuccess);
  EXPECT_EQ(processors, properties.multiProcessorCount);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
}

TEST_F(Runtime, DeviceIsSelectedByThread) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  std::thread([] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  }).join();
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
}

TEST_F(Runtime, MemoryIsChargedToTheSelectedDevice) {
  size_t free_before[2];
  size_t free_now[2];
  size_t total = 0;
  for (int device : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaMemGetInfo(&free_before[device], &total), cudaSuccess);
  }
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 32 * kMiB), cudaSuccess);
  for (int device : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaMemGetInfo(&free_now[device], &total), cudaSuccess);
  }
  EXPECT_EQ(free_before[0], free_now[0]);
  EXPECT_EQ(free_before[1] - free_now[1], 32 * kMiB);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess) << "memory may be freed from any device";
}

// The driver's function under the name and with the version that cuda.h's declaration has.
template <class Function>
Function* entry_point(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(found);
}

TEST_F(Runtime, AContextSetThroughTheDriverIsFollowed) {
  const auto retain = entry_point<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  const auto release = entry_point<decltype(cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease");
  const auto set_current = entry_point<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  CUcontext context = nullptr;
  ASSERT_EQ(retain(&context, 1), CUDA_SUCCESS);
  ASSERT_EQ(set_current(context), CUDA_SUCCESS);
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(release(1), CUDA_SUCCESS);
}

TEST_F(Runtime, WithoutAContextTheSelectedDeviceComesBack) {
  const auto set_current = entry_point<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(set_current(nullptr), CUDA_SUCCESS);
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kMiB), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Runtime, AnUnknownEntryPointIsAnAnswer) {
  void* found = &found;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &found, 13000, 0, &result), cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(found, nullptr);
}

TEST_F(Runtime, PeersCopyAndGrantAccess) {
  int can = 0;
  ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
  ASSERT_EQ(can, 1);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaGetLastError(), cudaErrorPeerAccessAlreadyEnabled);

  int sent = 4711;
  int received = 0;
  void* here = nullptr;
  void* there = nullptr;
  ASSERT_EQ(cudaMalloc(&here, sizeof sent), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&there, sizeof sent), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(here, &sent, sizeof sent, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpyPeerAsync(there, 1, here, 0, sizeof sent, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&received, there, sizeof sent, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(cudaMemcpyPeerAsync(there, 5, here, 0, sizeof sent, nullptr), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaFree(here), cudaSuccess);
  EXPECT_EQ(cudaFree(there), cudaSuccess);
}

}  // namespace
}  // namespace spillway::runtime_test
