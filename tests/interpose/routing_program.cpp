// routing_program WAY: reaches every function of the driver once, by one way of finding it, and prints how
// many it called. Ends with 1 and the names of those that did not arrive exactly once.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "driver/versions.h"
#include "interpose/hooks/functions.h"
#include "static_runtime.h"

using spillway::interpose::kFunctions;
using spillway::interpose::kNames;

extern "C" {
uint64_t fake_driver_arrivals(const char* name);
// cuda.h shows the newest version of each only.
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) result CUDAAPI name parameters;
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
}

namespace {

// More zeros than any of the functions has arguments, also where one is a struct by value.
void call_with_zeros(void* function) {
  using Any = int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                      uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  reinterpret_cast<Any>(function)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

const void* linked(const char* name) {
#define SPILLWAY_DRIVER_FUNCTION(result, function, parameters, arguments) \
  if (std::strcmp(name, #function) == 0) return reinterpret_cast<const void*>(&::function);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  return nullptr;
}

void* by_version(const char* name, bool with_status) {
  for (const spillway::driver::Version& known : spillway::driver::kVersions)
    if (std::strcmp(known.name, name) == 0)
      return static_runtime_find(known.base, known.first, known.per_thread_stream, with_status);
  return nullptr;
}

void* driver() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library;
}

using Find = std::function<void*(const char*)>;
const std::map<std::string, Find> kWays{
    {"link", [](const char* name) { return const_cast<void*>(linked(name)); }},
    {"dlsym", [](const char* name) { return dlsym(driver(), name); }},
    {"dlsym_default", [](const char* name) { return dlsym(RTLD_DEFAULT, name); }},
    {"dlsym_next", [](const char* name) { return dlsym(RTLD_NEXT, name); }},
    {"dlvsym", [](const char* name) { return dlvsym(driver(), name, "FAKE_DRIVER"); }},
    {"get_proc_address", [](const char* name) { return by_version(name, false); }},
    {"get_proc_address_v2", [](const char* name) { return by_version(name, true); }}};

}  // namespace

int main(int argc, char** argv) {
  const auto way = kWays.find(argc == 2 ? argv[1] : "");
  if (way == kWays.end()) return 2;
  uint64_t called = 0;
  std::vector<std::string> wrong;
  for (const char* name : kNames) {
    void* const function = way->second(name);
    if (function == nullptr) {
      wrong.emplace_back(std::string(name) + " not found");
      continue;
    }
    fake_driver_arrivals(name);
    call_with_zeros(function);
    ++called;
    if (const uint64_t arrived = fake_driver_arrivals(name); arrived != 1)
      wrong.emplace_back(std::string(name) + " arrived " + std::to_string(arrived) + " times");
  }
  for (const std::string& text : wrong) std::printf("%s\n", text.c_str());
  std::printf("called %llu of %zu\n", static_cast<unsigned long long>(called), kFunctions);
  return wrong.empty() ? 0 : 1;
}
