#include "interpose/newer_runtime.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "interpose/hooks/functions.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

std::atomic<int> told_version{INT_MAX};  // what the driver has told the program

void note(int runtime_major, int driver_version) {
  if (runtime_major <= driver_version / 1000) return;
  summary().driver_version.store(driver_version);
  summary().runtime_major.store(runtime_major);
}

}  // namespace

void compare_runtime_of(const void* caller, int driver_version) {
  constexpr const char* kRuntime = "libcudart.so.";
  told_version.store(driver_version, std::memory_order_relaxed);
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* file = slash == nullptr ? info.dli_fname : slash + 1;
  if (begins_with(file, kRuntime)) note(std::atoi(file + std::strlen(kRuntime)), driver_version);
}

void compare_asked_version(int cuda_version) {
  note(cuda_version / 1000, told_version.load(std::memory_order_relaxed));
}

}  // namespace spillway::interpose
