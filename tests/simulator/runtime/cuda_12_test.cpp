// libcudart.so.12 beside libcudart.so.13: the interface of CUDA 12's headers, and one runtime behind both.
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

// A function as a library that was linked against CUDA 12 gets it.
template <class Function>
Function* of_cuda_12(const char* name) {
  static void* const library = dlopen("libcudart.so.12", RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlvsym(library, name, "libcudart.so.12"));
}

class Cuda12 : public Runtime {};

TEST_F(Cuda12, SaysItsVersion) {
  int version = 0;
  ASSERT_EQ(of_cuda_12<cudaError_t(int*)>("cudaRuntimeGetVersion")(&version), cudaSuccess);
  EXPECT_EQ(version, 12080);
  ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
}

TEST_F(Cuda12, IsTheSameRuntimeAsTheNewerOne) {
  void* pointer = nullptr;
  int device = 0;
  ASSERT_EQ(of_cuda_12<cudaError_t(int)>("cudaSetDevice")(1), cudaSuccess);
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(of_cuda_12<cudaError_t(void**, size_t)>("cudaMalloc")(&pointer, 2 * kCapacity),
            cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(Cuda12, FreesWhatTheNewerOneAllocated) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, kMiB), cudaSuccess);
  EXPECT_EQ(of_cuda_12<cudaError_t(void*)>("cudaFree")(pointer), cudaSuccess);
}

// Offsets of driver_types.h of 12.8.
TEST_F(Cuda12, FillsItsOwnDeviceProperties) {
  constexpr size_t kBytes = 1032, kMemory = 288, kProcessors = 388, kLast = 776;
  std::array<std::byte, kBytes + 64> bytes;
  bytes.fill(std::byte{0xa5});
  ASSERT_EQ(of_cuda_12<cudaError_t(void*, int)>("cudaGetDeviceProperties_v2")(bytes.data(), 0), cudaSuccess);
  cudaDeviceProp newer;
  ASSERT_EQ(cudaGetDeviceProperties(&newer, 0), cudaSuccess);
  size_t memory = 0;
  int processors = 0, pointers = 0;
  std::memcpy(&memory, &bytes[kMemory], sizeof memory);
  std::memcpy(&processors, &bytes[kProcessors], sizeof processors);
  std::memcpy(&pointers, &bytes[kLast], sizeof pointers);
  EXPECT_STREQ(reinterpret_cast<const char*>(bytes.data()), newer.name);
  EXPECT_EQ(memory, newer.totalGlobalMem);
  EXPECT_EQ(processors, newer.multiProcessorCount);
  EXPECT_EQ(pointers, newer.unifiedFunctionPointers);
  for (size_t i = kBytes; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0xa5}) << i;
}

TEST_F(Cuda12, FillsItsOwnPointerAttributes) {
  struct {
    cudaMemoryType type;
    int device;
    void *device_pointer, *host_pointer, *beyond;
  } attributes{};
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, kMiB), cudaSuccess);
  attributes.beyond = &attributes;
  ASSERT_EQ(of_cuda_12<cudaError_t(void*, const void*)>("cudaPointerGetAttributes")(&attributes, pointer),
            cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device_pointer, pointer);
  EXPECT_EQ(attributes.beyond, &attributes);
  EXPECT_EQ(of_cuda_12<cudaError_t(void*, const void*)>("cudaPointerGetAttributes")(nullptr, pointer),
            cudaErrorInvalidValue);
  cudaGetLastError();
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(Cuda12, TellsOfACaptureWithoutEdgeData) {
  using Info = cudaError_t(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, cudaGraph_t*,
                           const cudaGraphNode_t**, size_t*);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  size_t count = 1;
  EXPECT_EQ(of_cuda_12<Info>("cudaStreamGetCaptureInfo_v2")(stream, &status, &id, nullptr, nullptr, &count),
            cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0U);
  EXPECT_EQ(count, 0U);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Cuda12, PrefetchesToADeviceByItsNumber) {
  using Prefetch = cudaError_t(const void*, size_t, int, cudaStream_t);
  void* pointer = nullptr;
  ASSERT_EQ(cudaMallocManaged(&pointer, 2 * kMiB, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(of_cuda_12<Prefetch>("cudaMemPrefetchAsync")(pointer, 2 * kMiB, 1, nullptr), cudaSuccess);
  EXPECT_EQ(of_cuda_12<Prefetch>("cudaMemPrefetchAsync")(pointer, 2 * kMiB, cudaCpuDeviceId, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);
}

}  // namespace
}  // namespace spillway::runtime_test
