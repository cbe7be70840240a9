// Every function of the list as a weak definition that names itself and refuses; the simulator's own
// definitions in the other files take their places at link time. Also the look-up by name.
#include <array>
#include <atomic>
#include <cstdio>
#include <string>
#include <unordered_map>

#include "driver/versions.h"
#include "simulator/driver/entry/functions.h"

namespace spillway::simulator {
namespace {

CUresult missing(Function function, const char* name) {
  static std::array<std::atomic<bool>, kFunctions> said;
  if (!said[static_cast<size_t>(function)].exchange(true))
    std::fprintf(stderr, "spillway simulator: %s is not simulated: returning CUDA_ERROR_NOT_SUPPORTED\n",
                 name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

template <typename... Arguments>
void ignore(const Arguments&...) {}

}  // namespace spillway::simulator

// The weak definitions lie together in a section of their own: that is how implemented() knows them.
extern "C" {
extern const char __start_spillway_missing[];
extern const char __stop_spillway_missing[];
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments)                 \
  __attribute__((weak, section("spillway_missing"))) result CUDAAPI name parameters { \
    spillway::simulator::ignore arguments;                                            \
    return spillway::simulator::missing(spillway::simulator::Function::name, #name);  \
  }
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
}

namespace spillway::simulator {
namespace {

const std::array<Export, kFunctions> kExports = {{
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  {#name, reinterpret_cast<void*>(&(name))},
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
}};

const std::unordered_map<std::string_view, Function>& names() {
  static const auto* map = [] {
    auto* made = new std::unordered_map<std::string_view, Function>;
    for (size_t i = 0; i < kFunctions; ++i) made->emplace(kExports[i].name, static_cast<Function>(i));
    return made;
  }();
  return *map;
}

}  // namespace

const Export& export_of(Function function) {
  return kExports[static_cast<size_t>(function)];
}

bool implemented(Function function) {
  const auto* address = static_cast<const char*>(export_of(function).address);
  return address < __start_spillway_missing || address >= __stop_spillway_missing;
}

Function find_export(std::string_view name) {
  const auto found = names().find(name);
  return found == names().end() ? Function::kCount : found->second;
}

Function find_function(std::string_view name, int cuda_version, bool per_thread_stream) {
  const char* found = driver::export_named(std::string(name).c_str(), cuda_version, per_thread_stream);
  return found ? find_export(found) : Function::kCount;
}

}  // namespace spillway::simulator
