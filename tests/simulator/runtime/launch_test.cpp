// What a program's own device code registers, and launches of it.
#include <cstring>

#include "tests/simulator/runtime/fixture.h"

extern "C" {
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

namespace spillway::runtime_test {
namespace {

char kernel = 0;
char stranger = 0;
char variable[256];

class Launch : public Runtime {
 protected:
  void SetUp() override {
    __cudaRegisterFunction(nullptr, &kernel, nullptr, "a_kernel", -1, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    __cudaRegisterVar(nullptr, variable, nullptr, "a_variable", 0, sizeof variable, 0, 0);
    Runtime::SetUp();
  }
};

TEST_F(Launch, ARegisteredKernelIsWorkOnItsStream) {
  ASSERT_EQ(cudaLaunchKernel(&kernel, dim3(2), dim3(128), nullptr, 0, nullptr), cudaSuccess);
  cudaKernel_t handle = nullptr;
  ASSERT_EQ(__cudaGetKernel(&handle, &kernel), cudaSuccess);
  ASSERT_EQ(__cudaLaunchKernel(handle, dim3(2), dim3(128), nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(counts().launches, 2u);
}

TEST_F(Launch, TheDriverLaunchesAFunctionFoundBySymbol) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  using Launcher = int (*)(cudaFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, cudaStream_t, void**, void**);
  const auto launch = reinterpret_cast<Launcher>(dlsym(driver, "cuLaunchKernel"));
  cudaFunction_t function = nullptr;
  ASSERT_EQ(cudaGetFuncBySymbol(&function, &kernel), cudaSuccess);
  EXPECT_EQ(launch(function, 2, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(counts().launches, 1u);
  EXPECT_EQ(cudaGetFuncBySymbol(&function, &stranger), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(dlclose(driver), 0);
}

TEST_F(Launch, torch_cuda_sleep_takes_its_cycles_on_the_virtual_clock) {
  static char sleep = 0;
  __cudaRegisterFunction(nullptr, &sleep, nullptr, "_ZN2at4cuda12_GLOBAL__N_111spin_kernelEl", -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
  int khz = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), cudaSuccess);
  int64_t cycles = int64_t{50} * khz;
  void* arguments[] = {&cycles};
  cudaEvent_t before = nullptr, after = nullptr;
  ASSERT_EQ(cudaEventCreate(&before), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&after), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(before, nullptr), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernel(&sleep, dim3(1), dim3(1), arguments, 0, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(after, nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(after), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(after), cudaSuccess);
  float ms = 0;
  ASSERT_EQ(cudaEventElapsedTime(&ms, before, after), cudaSuccess);
  EXPECT_NEAR(ms, 50, 0.1);
  EXPECT_EQ(cudaEventDestroy(before), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(after), cudaSuccess);
}

TEST_F(Launch, WhatIsNoKernelIsRefused) {
  EXPECT_EQ(cudaLaunchKernel(&stranger, dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(counts().launches, 0u);
}

TEST_F(Launch, ShapesThatNoDeviceTakesAreRefused) {
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(0), dim3(1), nullptr, 0, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1), dim3(1025), nullptr, 0, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1), dim3(64, 64), nullptr, 0, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1, 65536), dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidConfiguration);
}

TEST_F(Launch, SharedMemoryBeyondTheDefaultMustBeAskedFor) {
  constexpr int kBytes = 64 * 1024;
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1), dim3(1), nullptr, kBytes, nullptr), cudaErrorInvalidValue);
  ASSERT_EQ(cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1), dim3(1), nullptr, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 30),
            cudaErrorInvalidValue);
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, &kernel), cudaSuccess);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, kBytes);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
}

TEST_F(Launch, OccupancyFallsWithThreadsAndSharedMemory) {
  int few = 0;
  int many = 0;
  int shared = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&few, &kernel, 1024, 0), cudaSuccess);
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&many, &kernel, 128, 0), cudaSuccess);
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&shared, &kernel, 128, 40 * 1024), cudaSuccess);
  EXPECT_GE(few, 1);
  EXPECT_GT(many, few);
  EXPECT_LT(shared, many);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&few, &kernel, 0, 0), cudaErrorInvalidValue);
}

TEST_F(Launch, CallConfigurationsNest) {
  __cudaPushCallConfiguration(dim3(1), dim3(2), 3, cudaStreamLegacy);
  __cudaPushCallConfiguration(dim3(4), dim3(5), 6, cudaStreamPerThread);
  dim3 grid, block;
  size_t bytes = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream), cudaSuccess);
  EXPECT_EQ(grid.x, 4u);
  EXPECT_EQ(stream, cudaStreamPerThread);
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream), cudaSuccess);
  EXPECT_EQ(block.x, 2u);
  EXPECT_EQ(bytes, 3u);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream), cudaErrorMissingConfiguration);
}

// Not on the fixture's balance: a variable keeps its memory, as on a GPU.
TEST(LaunchSymbol, AVariableHasMemoryOfItsOwnOnEachDevice) {
  __cudaRegisterVar(nullptr, variable, nullptr, "a_variable", 0, sizeof variable, 0, 0);
  void* address[2];
  for (int device : {1, 0}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaGetSymbolAddress(&address[device], variable), cudaSuccess);
    void* again = nullptr;
    ASSERT_EQ(cudaGetSymbolAddress(&again, variable), cudaSuccess);
    EXPECT_EQ(again, address[device]);
    cudaPointerAttributes attributes;
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, again), cudaSuccess);
    EXPECT_EQ(attributes.device, device);
  }
  EXPECT_NE(address[0], address[1]);
  const int sent = 99;
  int received = 0;
  ASSERT_EQ(cudaMemcpyToSymbol(variable, &sent, sizeof sent, 8, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&received, static_cast<char*>(address[0]) + 8, sizeof sent, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(cudaMemcpyToSymbol(variable, &sent, sizeof sent, sizeof variable, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetSymbolAddress(&address[0], &stranger), cudaErrorInvalidSymbol);
}

}  // namespace
}  // namespace spillway::runtime_test
