// SPILLWAY_SIM_KERNELS and SPILLWAY_SIM_PLUGINS: a program that loads LibTorch's CUDA library gets them with
// its next device call. A library of the same name stands in for LibTorch's, and one that counts for the
// kernels and for a plugin.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace {

int counter(const char* name) {
  void* library = dlopen(SPILLWAY_TEST_KERNELS, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  return *static_cast<int*>(dlsym(library, name));
}

int installations() {
  return counter("spillway_test_installations");
}

TEST(RuntimePlugins, AreInstalledOnceWhenTorchIsThere) {
  setenv("SPILLWAY_SIM_KERNELS", SPILLWAY_TEST_KERNELS, 1);
  setenv("SPILLWAY_SIM_PLUGINS", "/absent/plugin.so:" SPILLWAY_TEST_KERNELS ":", 1);
  int device = 0;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(installations(), 0) << "before LibTorch is loaded";

  ASSERT_NE(dlopen(SPILLWAY_TEST_TORCH, RTLD_NOW), nullptr) << dlerror();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      int count = 0;
      EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
      EXPECT_EQ(installations(), 1) << "a call returned before the kernels were there";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(installations(), 1);
  EXPECT_EQ(counter("spillway_test_asked"), 3) << "a plugin that was not ready is asked again, until it is";
}

}  // namespace
