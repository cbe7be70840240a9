// What the tests of the runtime share: two simulated devices with real bytes, and the simulator's control
// interface.
#pragma once
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstring>

#include "driver/simulator_control.h"

namespace spillway::runtime_test {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kCapacity = 1024 * kMiB;

inline const SpillwaySimulatorControl& control() {
  static const SpillwaySimulatorControl* found = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto function =
        reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(driver, "spillway_simulator_control"));
    return function();
  }();
  return *found;
}

// Every test starts on device 0 without an error and leaves no violation and nothing on the devices behind.
class Runtime : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
    control().reset();
    before_ = live_pages();
  }

  void TearDown() override {
    for (int device : {1, 0}) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    char text[4096];
    control().violations(text, sizeof text);
    EXPECT_STREQ(text, "");
    EXPECT_EQ(live_pages(), before_);
  }

  static uint64_t live_pages() { return counts().live_pages_bytes; }

  // Modelled bytes of a library on the first device.
  static uint64_t charged(const char* label) {
    SpillwaySimulatorUsage usage{};
    control().usage(0, &usage);
    for (uint32_t i = 0; i < usage.part_count; ++i) {
      if (std::strcmp(usage.parts[i].label, label) == 0) return usage.parts[i].bytes;
    }
    return 0;
  }

  static SpillwaySimulatorCounts counts() {
    SpillwaySimulatorCounts counts{};
    control().counts(&counts);
    return counts;
  }

 private:
  uint64_t before_ = 0;
};

}  // namespace spillway::runtime_test
