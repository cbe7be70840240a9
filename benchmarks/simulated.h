// What benchmarks on the simulated driver begin with. An error ends the program with a line that names it.
#pragma once
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "driver/table.h"

namespace spillway::benchmarks {

[[noreturn]] inline void fail(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

inline void must(bool good, const char* what) {
  if (!good) fail(std::string(what) + " failed");
}

// The driver in a library, started, with the first device's context current.
inline const driver::Table& start_simulated(const std::string& library) {
  driver::LoadError error;
  const driver::Table* table = driver::resolve(library.c_str(), &error);
  if (table == nullptr) fail(error.text);
  if (table->simulator == nullptr) fail(library + " is not the simulated driver");
  CUcontext context = nullptr;
  must(table->cuInit(0) == CUDA_SUCCESS, "cuInit");
  must(table->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  must(table->cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
  return *table;
}

}  // namespace spillway::benchmarks
