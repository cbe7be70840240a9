// Devices, contexts, plain allocation and the accounts.
#include <gmock/gmock.h>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::HasSubstr;
using testing::MatchesRegex;

TEST(Basics, refuses_everything_before_cuInit) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    int count = 0, version = 0;
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(table.cuMemAlloc(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(table.cuDriverGetVersion(&version), CUDA_SUCCESS);
    EXPECT_EQ(version, 13020);
  });
}

TEST(Basics, says_once_which_file_brings_a_runtime_of_its_own) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUuuid runtime = {{'\x6b', '\xd5', '\xfb', '\x6c', '\x5b', '\xf4', '\xe7', '\x4a', '\x89', '\x87',
                             '\xd9', '\x39', '\x12', '\xfd', '\x9d', '\xf9'}};
    const CUuuid other = {};
    const void* functions = nullptr;
    testing::internal::CaptureStderr();
    EXPECT_EQ(table.cuGetExportTable(&functions, &other), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    testing::internal::CaptureStderr();
    EXPECT_EQ(table.cuGetExportTable(&functions, &runtime), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(table.cuGetExportTable(&functions, &runtime), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(functions, nullptr);
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        MatchesRegex("spillway simulator: .*test_simulator_driver_basics brings a CUDA runtime of its "
                     "own[^\n]*nvcc -cudart shared.\n"));
  });
}

TEST(Basics, has_the_devices_and_capacity_asked_for) {
  in_process({{"SPILLWAY_SIM_DEVICES", "3"}, {"SPILLWAY_SIM_CAPACITY", "16GB"}}, [] {
    const Table& table = started_driver();
    int count = 0, major = 0;
    size_t bytes = 0, free = 0;
    EXPECT_EQ(table.cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(table.cuDeviceTotalMem(&bytes, 2), CUDA_SUCCESS);
    EXPECT_EQ(bytes, 16'000'000'000u);
    EXPECT_EQ(table.cuDeviceTotalMem(&bytes, 3), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(table.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(major, 8);
    EXPECT_EQ(table.cuMemGetInfo(&free, &bytes), CUDA_SUCCESS);
    EXPECT_EQ(free, bytes);
  });
}

TEST(Basics, charges_allocations_by_granules_and_gives_them_back) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "64MiB"}}, [] {
    const Table& table = started_driver();
    size_t free = 0, total = 0;
    CUdeviceptr a = 0, b = 0;
    EXPECT_EQ(table.cuMemAlloc(&a, kPage + 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total - free, 2 * kPage);
    EXPECT_EQ(table.cuMemAlloc(&b, total), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.cuMemAlloc(&b, free), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(a), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(b), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(free, total);
    EXPECT_EQ(counts(table).violations, 0u);
    EXPECT_EQ(text(table.simulator->leaks), "");
  });
}

TEST(Basics, a_second_free_is_refused_and_reported_with_both_sites) {
  in_process({}, [] {
    const Table& table = started_driver();
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuMemAlloc(&address, 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(table).violations, 1u);
    EXPECT_THAT(text(table.simulator->violations), HasSubstr("which is no allocation, freed at "));
    EXPECT_THAT(text(table.simulator->violations), HasSubstr("; freed at "));
  });
}

}  // namespace
}  // namespace spillway::test
