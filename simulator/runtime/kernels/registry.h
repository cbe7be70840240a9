// What the program's own CUDA code registers when it is loaded: kernels and device variables.
//
// Thread-safety: every function may be called from any thread. Ownership: entries live as long as the
// process; their names are the registering library's. Units: bytes.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway::runtime {

class Binary;

struct Kernel {
  Kernel(const char* kernel_name, Binary* from) : name(kernel_name), binary(from) {}
  const char* name;
  const bool spins = std::string_view(name).ends_with("11spin_kernelEl");  // PyTorch's torch.cuda._sleep
  Binary* binary;                                    // null: the simulator's own, which every card runs
  std::atomic<uint32_t> loaded_on{0};                // devices
  std::atomic<int> dynamic_shared_bytes{48 * 1024};  // what cudaFuncSetAttribute allows it
  std::atomic<CUfunction> function{nullptr};         // the driver's, from the first launch on
};

// The kernel behind a host function, or null.
Kernel* find_kernel(const void* host_function);

// Size of the registered variable; 0 when the address is no registered one.
std::size_t variable_bytes(const void* host_variable);

}  // namespace spillway::runtime
