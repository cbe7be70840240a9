// The exported functions: one enumerator each, their declarations, and which of them the simulator
// implements. A definition whose signature differs from the list's does not compile.
//
// Thread-safety: everything here is constant. Ownership: names are literals. Errors and units: none.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  __attribute__((visibility("default"))) result CUDAAPI name parameters;
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
}

namespace spillway::simulator {

// `Function::cuMemAlloc` means what cuda.h means by cuMemAlloc: the export cuMemAlloc_v2.
enum class Function : uint16_t {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) name,
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  kCount
};
constexpr size_t kFunctions = static_cast<size_t>(Function::kCount);

struct Export {
  const char* name;
  void* address;
};
const Export& export_of(Function function);
// False for the generated functions that only say that the simulator lacks them.
bool implemented(Function function);
// The function of an exported name, or of a name without suffix as cuda.h of `cuda_version` means it. kCount:
// none.
Function find_export(std::string_view name);
Function find_function(std::string_view name, int cuda_version, bool per_thread_stream);

}  // namespace spillway::simulator
