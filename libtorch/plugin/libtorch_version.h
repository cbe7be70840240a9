// Which LibTorch the process runs, asked of a function that every version since 2.9 has, without LibTorch's
// headers.
//
// Thread-safety: from any thread. Errors: none; a process without LibTorch has version 0.0.
#pragma once
#include <cstdint>
#include <string>

namespace spillway::libtorch {

struct LibTorchVersion {
  uint64_t major = 0;
  uint64_t minor = 0;
  bool known() const { return major != 0; }
  // "2.11"
  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

LibTorchVersion libtorch_version();

// A symbol of the library of that name, if the process has loaded it, or of any global one.
void* loaded_symbol(const char* library, const char* name);

}  // namespace spillway::libtorch
