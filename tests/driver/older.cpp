// The driver as it was in older versions of CUDA: what came later is not there, by whichever way it is looked
// for, and Spillway's table goes without.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "driver/probe.h"
#include "driver/versions.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::LoadError;
using driver::Table;
using testing::HasSubstr;

struct Older {
  int version;
  const char* profile;
};

std::string library_of(const Older& older) {
  std::string path = simulator_library();
  return path.insert(path.rfind('/') + 1, older.profile + std::string("/"));
}

class OlderDriver : public testing::TestWithParam<Older> {};

TEST_P(OlderDriver, exports_what_there_was) {
  in_process({}, [] {
    void* library = dlopen(library_of(GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const driver::Version& known : driver::kVersions)
      EXPECT_EQ(dlsym(library, known.name) != nullptr, known.first <= GetParam().version) << known.name;
    EXPECT_NE(dlsym(library, "spillway_simulator_control"), nullptr);
  });
}

TEST_P(OlderDriver, finds_what_there_was_by_name_and_version) {
  in_process({}, [] {
    void* library = dlopen(library_of(GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto get = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
    for (const driver::Version& known : driver::kVersions) {
      const auto flags = known.per_thread_stream ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
      const char* expected = driver::export_named(known.base, std::min(CUDA_VERSION, GetParam().version),
                                                  known.per_thread_stream);
      void* found = nullptr;
      CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
      EXPECT_EQ(get(known.base, &found, CUDA_VERSION, flags, &status), CUDA_SUCCESS);
      EXPECT_EQ(found, expected == nullptr ? nullptr : dlsym(library, expected)) << known.base;
      const bool said = status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
      EXPECT_EQ(said, expected == nullptr) << known.base;
    }
  });
}

TEST_P(OlderDriver, is_one_that_the_table_takes) {
  in_process({{"SPILLWAY_SIM_PROFILE", GetParam().profile}}, [] {
    LoadError error;
    const Table* table = driver::resolve(library_of(GetParam()).c_str(), &error);
    ASSERT_NE(table, nullptr) << error.text;
    int version = 0;
    EXPECT_EQ(table->cuDriverGetVersion(&version), CUDA_SUCCESS);
    EXPECT_EQ(version, GetParam().version);
    EXPECT_EQ(table->cuCtxGetDevice_v2, nullptr);
    EXPECT_NE(table->cuEventElapsedTime, nullptr) << "or the older one of the same meaning";
    const driver::Features features = driver::probe(*table, 0);
    EXPECT_TRUE(features.virtual_memory) << features.why_not;
    EXPECT_TRUE(features.file_descriptors) << features.why_not;
  });
}

INSTANTIATE_TEST_SUITE_P(All, OlderDriver,
                         testing::Values(Older{12020, "driver-12.2"}, Older{12080, "driver-12.8"}),
                         [](const auto& of) { return "cuda_" + std::to_string(of.param.version); });

TEST(OlderProfile, is_refused_by_the_library_of_another_version) {
  in_process({{"SPILLWAY_SIM_PROFILE", "driver-12.8"}}, [] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("the profile is of a driver of CUDA 12.8, and this library is one of CUDA 13.2"));
  });
}

}  // namespace
}  // namespace spillway::test
