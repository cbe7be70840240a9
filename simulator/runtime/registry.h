// What the program's own CUDA code registers when it is loaded: kernels and device variables.
//
// Thread-safety: every function may be called from any thread. Ownership: entries live as long as the
// process; their names are the registering library's. Units: bytes.
#pragma once
#include <atomic>
#include <cstddef>

namespace spillway::runtime {

struct Kernel {
  explicit Kernel(const char* kernel_name) : name(kernel_name) {}
  const char* name;
  std::atomic<int> dynamic_shared_bytes{48 * 1024};  // what cudaFuncSetAttribute allows it
  std::atomic<bool> named{false};                    // said to compute nothing
};

// The kernel behind a host function, or null.
Kernel* find_kernel(const void* host_function);

// Size of the registered variable; 0 when the address is no registered one.
std::size_t variable_bytes(const void* host_variable);

}  // namespace spillway::runtime
