#include "simulator/runtime/kernels/registry.h"

#include <cuda_runtime_api.h>

#include <unordered_map>

#include "base/mutex.h"
#include "simulator/runtime/kernels/images.h"

namespace spillway::runtime {
namespace {

struct Registry {
  SharedMutex<LockOrder::kLeaf> mutex;
  std::unordered_map<const void*, Kernel> kernels SPILLWAY_GUARDED_BY(mutex);
  std::unordered_map<const void*, Binary*> binaries
      SPILLWAY_GUARDED_BY(mutex);  // by handle; never deleted, as kernels name them
  std::unordered_map<const void*, std::size_t> variables SPILLWAY_GUARDED_BY(mutex);
};

// Libraries register before main and unregister after it, so the registry is never destroyed.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

Kernel* find_kernel(const void* host_function) {
  Registry& all = registry();
  const SharedLocked lock(all.mutex);
  auto found = all.kernels.find(host_function);
  return found == all.kernels.end() ? nullptr : &found->second;
}

std::size_t variable_bytes(const void* host_variable) {
  Registry& all = registry();
  const SharedLocked lock(all.mutex);
  auto found = all.variables.find(host_variable);
  return found == all.variables.end() ? 0 : found->second;
}

}  // namespace spillway::runtime

using spillway::runtime::Binary;
using spillway::runtime::registry;

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  auto& all = registry();
  const spillway::Locked lock(all.mutex);
  all.binaries[binary] = new Binary(binary);
  // The handle only travels back into the calls below.
  return static_cast<void**>(binary);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  auto& all = registry();
  const spillway::Locked lock(all.mutex);
  const auto binary = all.binaries.find(static_cast<const void*>(handle));
  Binary* from = binary == all.binaries.end() ? nullptr : binary->second;
  if (all.kernels.try_emplace(host_function, name, from).second && from != nullptr) from->add_kernel();
}

void __cudaRegisterVar(void**, char* host_variable, char*, const char*, int, size_t bytes, int, int) {
  auto& all = registry();
  const spillway::Locked lock(all.mutex);
  all.variables.try_emplace(host_variable, bytes);
}

// A kernel handle is the host function that stands for it: both find the same entry.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}
}
