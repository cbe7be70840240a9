// A program whose CUDA runtime is of a newer major version than the driver: all its calls fail, and the run's
// summary says why. A shared runtime is known by its file when it asks the driver's version, one that is
// linked into a program by the versions of the functions that it looks up after that.
//
// Thread-safety: any thread. Errors: none; a runtime that asks in another way is not seen.
#pragma once
#include <cuda.h>

#include <atomic>

namespace spillway::interpose {

[[gnu::cold]] void compare_runtime_of(const void* caller, int driver_version);
void compare_asked_version(int cuda_version);

// After cuDriverGetVersion. Runtimes ask early; who asks for ever is not looked at each time.
inline void compare_runtime(const void* caller, const int* driver_version) {
  constexpr int kLooks = 64;
  static std::atomic<int> looks{0};
  if (looks.load(std::memory_order_relaxed) >= kLooks) [[likely]]
    return;
  looks.fetch_add(1, std::memory_order_relaxed);
  if (driver_version != nullptr) compare_runtime_of(caller, *driver_version);
}

// After cuGetProcAddress, in both its versions.
template <class... Status>
void compare_runtime(const char*, void**, int cuda_version, cuuint64_t, Status...) {
  compare_asked_version(cuda_version);
}

}  // namespace spillway::interpose
