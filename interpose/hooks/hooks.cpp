// The hooks themselves: an export for every function in the driver's list.
#include "interpose/hooks/hooks.h"

#include "interpose/hooks/call.h"
#include "interpose/hooks/driver_table.h"

#define SPILLWAY_EXPORT __attribute__((visibility("default")))
#define SPILLWAY_FOLLOW(...) __VA_OPT__(, ) __VA_ARGS__

extern "C" {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments)   \
  SPILLWAY_EXPORT result CUDAAPI name parameters {                      \
    using namespace spillway::interpose;                                \
    return call<Function::name>(real().name SPILLWAY_FOLLOW arguments); \
  }
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
}

namespace spillway::interpose {

void* hook_of(Function function) {
  static void* const kHooks[kFunctions] = {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) reinterpret_cast<void*>(&::name),
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  };
  return kHooks[static_cast<size_t>(function)];
}

}  // namespace spillway::interpose
