// unlisted_program: finds functions that only the driver knows, by every way of finding them, and prints for
// each how many of sixteen arguments arrived, at the first call and at the second.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

#include "static_runtime.h"

namespace {

constexpr int kNewerVersion = 99020;

int arrived(void* function) {
  using Newer = int (*)(int, int, int, int, int, int, double, double, double, double, double, double, double,
                        double, int, double);
  return function == nullptr
             ? -1
             : reinterpret_cast<Newer>(function)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
}

void call(const char* name, void* function) {
  const int first = arrived(function), second = arrived(function);
  std::printf("%s %d %d\n", name, first, second);
}

}  // namespace

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 2;
  void* const by_name = dlsym(driver, "cuLaunchNewer");
  call("dlsym", by_name);
  call("dlvsym", dlvsym(driver, "cuMemTakeNewer", "FAKE_DRIVER"));
  call("cuGetProcAddress", static_runtime_find("cuMemFree", kNewerVersion, false, true));
  std::printf("same %d\n", by_name == static_runtime_find("cuLaunchNewer", kNewerVersion, false, false));
  std::printf("never called %d\n", dlsym(driver, "cuMemFree_v9") != nullptr);
  std::printf("nobody's %d\n", dlsym(driver, "cuNoSuchFunction") == nullptr && dlerror() != nullptr);
  return 0;
}
