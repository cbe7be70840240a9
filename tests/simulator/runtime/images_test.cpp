// Kernels whose binaries have no image for the card (compute capability 8.0), and kernels that have.
#include <gmock/gmock.h>

#include <cstdlib>
#include <deque>

#include "tests/simulator/fat_binaries.h"
#include "tests/simulator/runtime/fixture.h"

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
}

namespace {

using spillway::test::container;
using spillway::test::FatBinary;
using spillway::test::ImageSpec;
using testing::HasSubstr;

// A kernel of a binary with these images, registered as a library's start-up code does. Stays for the
// process.
const void* kernel_with(const std::vector<ImageSpec>& images) {
  struct Kernel {
    std::string bytes;
    FatBinary binary;
    char host_function;
  };
  static std::deque<Kernel> all;
  Kernel& kernel = all.emplace_back(Kernel{.bytes = container(images), .binary = {}, .host_function = 0});
  kernel.binary.data = kernel.bytes.data();
  void** handle = __cudaRegisterFatBinary(&kernel.binary);
  __cudaRegisterFunction(handle, &kernel.host_function, nullptr, "some_kernel", -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  return &kernel.host_function;
}

cudaError_t launch(const void* kernel) {
  return cudaLaunchKernel(kernel, dim3(1), dim3(32), nullptr, 0, nullptr);
}

TEST(Images, a_kernel_with_an_image_runs) {
  const void* kernel = kernel_with({{2, 75}, {2, 80}, {2, 90}});
  EXPECT_EQ(launch(kernel), cudaSuccess);
  cudaFuncAttributes attributes;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
  EXPECT_EQ(attributes.binaryVersion, 80);
  EXPECT_EQ(launch(kernel_with({{1, 75}})), cudaSuccess) << "PTX is compiled for later cards";
}

TEST(Images, a_kernel_without_one_fails_as_on_the_card) {
  const void* kernel = kernel_with({{2, 75}, {2, 90}, {1, 100}});
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(kernel), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
  cudaFuncAttributes attributes;
  int blocks = 0;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024),
            cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 0),
            cudaErrorNoKernelImageForDevice);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      said,
      HasSubstr("has no kernels for compute capability 8.0 (Spillway Simulated GPU (sm_80)): it was built "
                "for sm_75 sm_90 compute_100."));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once for each library";
  cudaGetLastError();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << "the context lives on";
}

uint64_t code_bytes(int device) {
  SpillwaySimulatorUsage usage{};
  EXPECT_EQ(spillway::runtime_test::control().usage(device, &usage), CUDA_SUCCESS);
  for (uint32_t i = 0; i < usage.part_count; ++i)
    if (usage.parts[i].label == std::string("modules")) return usage.parts[i].bytes;
  return 0;
}

TEST(ImagesWithOverheads, what_is_loaded_is_charged_once_for_each_device) {
  ASSERT_NE(std::getenv("SPILLWAY_SIM_OVERHEADS"), nullptr) << "ctest runs this by itself, with overheads";
  constexpr uint64_t kMiB = 1 << 20;
  const void* kernel = kernel_with({{2, 80, 0, 64, 5 * kMiB}});
  const void* small = kernel_with({{2, 80, 0, 64, 1 * kMiB}});
  EXPECT_EQ(launch(kernel), cudaSuccess);
  EXPECT_EQ(code_bytes(0), 6 * kMiB);
  EXPECT_EQ(launch(kernel), cudaSuccess);
  EXPECT_EQ(launch(small), cudaSuccess);
  EXPECT_EQ(code_bytes(0), 6 * kMiB) << "there was room in the last granule";
  EXPECT_EQ(code_bytes(1), 0u);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(kernel), cudaSuccess);
  EXPECT_EQ(code_bytes(1), 6 * kMiB);
  EXPECT_EQ(launch(kernel_with({{2, 80, 0, 64, uint64_t{2} << 30}})), cudaErrorMemoryAllocation);
}

TEST(Images, a_binary_that_can_not_be_read_refuses_nothing) {
  EXPECT_EQ(launch(kernel_with({})), cudaSuccess);
  static FatBinary broken{.magic = 1};
  static char host_function;
  __cudaRegisterFunction(__cudaRegisterFatBinary(&broken), &host_function, nullptr, "k", -1, nullptr, nullptr,
                         nullptr, nullptr, nullptr);
  EXPECT_EQ(launch(&host_function), cudaSuccess);
}

}  // namespace
