// The driver's functions by number: one for each export in the one list.
//
// Thread-safety: constant data.
#pragma once
#include <cstddef>
#include <cstdint>

namespace spillway::interpose {

enum class Function : uint16_t {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) name,
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  kCount
};
inline constexpr size_t kFunctions = static_cast<size_t>(Function::kCount);

inline constexpr const char* kNames[kFunctions] = {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) #name,
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
};

constexpr const char* name_of(Function function) {
  return kNames[static_cast<size_t>(function)];
}

constexpr bool begins_with(const char* text, const char* start) {
  while (*start != '\0') {
    if (*text++ != *start++) return false;
  }
  return true;
}

}  // namespace spillway::interpose
