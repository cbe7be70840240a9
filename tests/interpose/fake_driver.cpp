// A libcuda.so.1 that does nothing but count: every function of the list, how often it was reached. The
// simulated driver cannot stand here, because no argument would suit every function of the list.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "driver/versions.h"
#include "interpose/hooks/functions.h"

using spillway::interpose::Function;
using spillway::interpose::kFunctions;
using spillway::interpose::kNames;

namespace {

std::atomic<uint64_t> arrivals[kFunctions];

CUresult arrive(Function function) {
  arrivals[static_cast<size_t>(function)].fetch_add(1);
  return CUDA_SUCCESS;
}

void* address_of(const char* name);
void* unlisted(const char* name, int version);

CUresult find(const char* symbol, void** found, int version, cuuint64_t flags) {
  if (symbol == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const char* name = spillway::driver::export_named(symbol, version, per_thread);
  *found = unlisted(symbol, version);
  if (*found == nullptr && name != nullptr) *found = address_of(name);
  return *found == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

template <Function function, class... Parameters>
CUresult serve(Parameters... parameters) {
  arrive(function);
  if constexpr (spillway::interpose::begins_with(kNames[static_cast<size_t>(function)], "cuGetProcAddress")) {
    return [](const char* symbol, void** found, int version, cuuint64_t flags, auto*... status) {
      const CUresult result = find(symbol, found, version, flags);
      ((status == nullptr ? void() : void(*status = CU_GET_PROC_ADDRESS_SUCCESS)), ...);
      return result;
    }(parameters...);
  } else {
    return CUDA_SUCCESS;
  }
}

}  // namespace

#define SPILLWAY_EXPORT __attribute__((visibility("default")))
extern "C" {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  SPILLWAY_EXPORT result CUDAAPI name parameters {                    \
    return serve<Function::name> arguments;                           \
  }
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION

// Of a driver that is newer than the list: how many of its arguments arrived as `unlisted_program` gives
// them.
#define SPILLWAY_NEWER_FUNCTION(name)                                                                        \
  SPILLWAY_EXPORT int name(int a, int b, int c, int d, int e, int f, double g, double h, double i, double j, \
                           double k, double l, double m, double n, int o, double p) {                        \
    return (a == 1) + (b == 2) + (c == 3) + (d == 4) + (e == 5) + (f == 6) + (g == 7) + (h == 8) +           \
           (i == 9) + (j == 10) + (k == 11) + (l == 12) + (m == 13) + (n == 14) + (o == 15) + (p == 16);     \
  }
SPILLWAY_NEWER_FUNCTION(cuLaunchNewer)
SPILLWAY_NEWER_FUNCTION(cuMemTakeNewer)
SPILLWAY_NEWER_FUNCTION(cuMemFree_v9)

// How often the function was reached since the last time it was asked.
SPILLWAY_EXPORT uint64_t fake_driver_arrivals(const char* name) {
  for (size_t i = 0; i < kFunctions; ++i)
    if (std::strcmp(kNames[i], name) == 0) return arrivals[i].exchange(0);
  return UINT64_MAX;
}
}

namespace {

void* address_of(const char* name) {
#define SPILLWAY_DRIVER_FUNCTION(result, function, parameters, arguments) \
  if (std::strcmp(name, #function) == 0) return reinterpret_cast<void*>(&::function);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  return nullptr;
}

void* unlisted(const char* name, int version) {
  if (std::strcmp(name, "cuLaunchNewer") == 0) return reinterpret_cast<void*>(&::cuLaunchNewer);
  if (std::strcmp(name, "cuMemTakeNewer") == 0) return reinterpret_cast<void*>(&::cuMemTakeNewer);
  const bool newer = version > CUDA_VERSION && std::strcmp(name, "cuMemFree") == 0;
  return newer ? reinterpret_cast<void*>(&::cuMemFree_v9) : nullptr;
}

}  // namespace
