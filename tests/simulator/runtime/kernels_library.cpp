// Kernels that only count, and call CUDA from the installation, from this thread and as its constructors may.
#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>

extern "C" {
__attribute__((visibility("default"))) int spillway_test_installations = 0;

__attribute__((visibility("default"))) int spillway_kernels_install() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  // Long enough for the other threads of the test to arrive while it runs.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ++spillway_test_installations;
  return 0;
}

__attribute__((visibility("default"))) int spillway_test_asked = 0;

// As a plugin: installed when it is asked for the third time.
__attribute__((visibility("default"))) int spillway_plugin_install() {
  return ++spillway_test_asked < 3 ? -1 : 0;
}
}
