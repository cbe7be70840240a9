// The table of CUDA driver functions: the one seam between Spillway and a GPU, filled by the real
// libcuda.so.1 or by the simulator's. Fields carry the exported names; cuda.h's macros make
// `table.cuMemAlloc(...)` mean the version that the headers mean.
//
// Thread-safety: a table is immutable once resolved. Ownership: a loaded library is never unloaded. Errors: a
// missing library, a driver older than CUDA 12.2 or one without a function that Spillway needs (required.inc)
// is a `LoadError` with a text that says what to do; any other function that the driver lacks is a null
// field.
#pragma once
#include <cuda.h>

#include <optional>
#include <string>
#include <vector>

#include "driver/simulator_control.h"

namespace spillway::driver {

struct Table {
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes no parentheses
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  result(CUDAAPI* name) parameters = nullptr;
// NOLINTEND(bugprone-macro-parentheses)
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  // Null when the driver is a real one.
  const SpillwaySimulatorControl* simulator = nullptr;
};

// The oldest version of CUDA whose drivers Spillway works with.
inline constexpr int kOldestVersion = 12020;

struct LoadError {
  std::string text;
};

// Loads `library` (the path or soname of a driver) and resolves every function with dlsym on that library's
// own handle, so that no interposed symbol, ours included, is ever found. Where the driver lacks the newest
// version of a function and has an older one that means the same, the field is that one. Returns null and
// fills `error` when the library cannot be loaded or Spillway cannot work with it.
const Table* resolve(const char* library, LoadError* error);

// The process's driver: libcuda.so.1 (or $SPILLWAY_DRIVER), resolved once.
const Table* process_table(LoadError* error);

// The exported names of the list that the driver lacks.
std::vector<const char*> lacking(const Table& table);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", also where the table has no cuGetErrorName.
std::string describe(const Table& table, CUresult result);

}  // namespace spillway::driver
