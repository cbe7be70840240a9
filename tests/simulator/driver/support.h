// For tests of the simulated driver: each body runs in a process of its own, so that it has its own
// configuration, its own card and no state of the test before.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "driver/table.h"

namespace spillway::test {

using Settings = std::map<std::string, std::string>;  // environment variables

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kPage = 2 * kMiB;

inline std::string simulator_library() {
  const char* build = std::getenv("SPILLWAY_BUILD_DIR");
  return std::string(build ? build : ".") + "/lib/sim/libcuda.so.1";
}

// Runs `body` in a child process with the settings in its environment; the child's failures are the test's.
inline void in_process(const Settings& settings, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed, status " << status;
}

// The simulated driver, loaded and not yet initialised.
inline const driver::Table& loaded_driver() {
  driver::LoadError error;
  const driver::Table* table = driver::resolve(simulator_library().c_str(), &error);
  if (!table) {
    std::fprintf(stderr, "%s\n", error.text.c_str());
    std::exit(2);
  }
  return *table;
}

// cuInit, and device 0's primary context current.
inline const driver::Table& started_driver() {
  const driver::Table& table = loaded_driver();
  CUcontext context = nullptr;
  EXPECT_EQ(table.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuCtxSetCurrent(context), CUDA_SUCCESS);
  return table;
}

inline SpillwaySimulatorCounts counts(const driver::Table& table) {
  SpillwaySimulatorCounts counts = {};
  table.simulator->counts(&counts);
  return counts;
}

inline std::string text(size_t (*fill)(char*, size_t)) {
  std::vector<char> buffer(fill(nullptr, 0) + 1);
  fill(buffer.data(), buffer.size());
  return buffer.data();
}

inline CUmemAllocationProp device_page(int device = 0) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return prop;
}

inline CUmemAccessDesc read_write(int device = 0) {
  return {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

}  // namespace spillway::test
