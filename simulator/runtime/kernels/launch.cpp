// Launches: they take their place on the stream and compute nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"
#include "simulator/runtime/kernels/images.h"
#include "simulator/runtime/kernels/registry.h"

using namespace spillway::runtime;

namespace {

constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr int kRegistersPerThread = 32;  // what PyTorch's occupancy questions see for every kernel

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
// f<<<a, b>>>(g<<<c, d>>>()) nests.
thread_local std::vector<CallConfiguration> call_configurations;

bool is_valid(dim3 grid, dim3 block) {
  return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
         grid.z <= 65535 && block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= 1024 &&
         block.y <= 1024 && block.z <= 64 &&
         static_cast<unsigned long long>(block.x) * block.y * block.z <= kMaxThreadsPerBlock;
}

// The kernel behind a host function, its code loaded on the thread's device.
cudaError_t find_loaded(const void* function, Kernel** kernel) {
  *kernel = find_kernel(function);
  return *kernel == nullptr ? cudaErrorInvalidDeviceFunction : load(**kernel);
}

CUfunction function_of(Kernel& kernel) {
  CUfunction function = kernel.function.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = driver().control->function(kernel.name);
    kernel.function.store(function, std::memory_order_release);
  }
  return function;
}

// A kernel that does nothing for a number of the card's clock cycles: the one whose time is known.
cudaError_t spin(const Kernel& kernel, int64_t cycles, cudaStream_t stream) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  const double ms = static_cast<double>(std::max<int64_t>(0, cycles)) /
                    std::max(1, attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  const auto ns = static_cast<uint64_t>(ms * 1e6);
  return to_runtime(driver().control->submit(stream, kernel.name, nullptr, 0, ns, nullptr, nullptr));
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream) {
  if (cudaError_t error = bind_context(); error != cudaSuccess) return error;
  Kernel* kernel = nullptr;
  if (cudaError_t error = find_loaded(function, &kernel); error != cudaSuccess) return error;
  if (!is_valid(grid, block)) return cudaErrorInvalidConfiguration;
  if (shared_bytes > static_cast<size_t>(kernel->dynamic_shared_bytes.load(std::memory_order_relaxed))) {
    return cudaErrorInvalidValue;
  }
  if (kernel->spins && arguments != nullptr)
    return spin(*kernel, *static_cast<const int64_t*>(arguments[0]), stream);
  return bound_call(&Driver::cuLaunchKernel, function_of(*kernel), grid.x, grid.y, grid.z, block.x, block.y,
                    block.z, static_cast<unsigned>(shared_bytes), stream, nullptr, nullptr);
}

// Blocks of `threads` threads that fit on one multiprocessor of `device` together.
int blocks_per_multiprocessor(int device, int threads, size_t shared_bytes) {
  const int warp = std::max(1, attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  const int rounded = (threads + warp - 1) / warp * warp;
  int blocks = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / rounded;
  blocks = std::min(blocks, attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  const int registers = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  blocks = std::min(blocks, registers / (rounded * kRegistersPerThread));
  const size_t reserved =
      static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
  const size_t shared =
      static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  if (shared_bytes > 0) blocks = std::min(blocks, static_cast<int>(shared / (shared_bytes + reserved)));
  return blocks;
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  call_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (call_configurations.empty()) return finish(cudaErrorMissingConfiguration);
  const CallConfiguration top = call_configurations.back();
  call_configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return finish(launch(function, grid, block, arguments, shared_bytes, stream));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return finish(launch(kernel, grid, block, arguments, shared_bytes, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function,
                                void** arguments) {
  if (configuration == nullptr) return finish(cudaErrorInvalidValue);
  return finish(launch(function, configuration->gridDim, configuration->blockDim, arguments,
                       configuration->dynamicSmemBytes, configuration->stream));
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return finish(launch(function, grid, block, arguments, shared_bytes, stream));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* symbol) {
  if (out == nullptr) return finish(cudaErrorInvalidValue);
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  Kernel* kernel = nullptr;
  if (cudaError_t error = find_loaded(symbol, &kernel); error != cudaSuccess) return finish(error);
  *out = reinterpret_cast<cudaFunction_t>(function_of(*kernel));
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return finish(error);
  if (attributes == nullptr) return finish(cudaErrorInvalidValue);
  Kernel* kernel = nullptr;
  if (cudaError_t error = find_loaded(function, &kernel); error != cudaSuccess) return finish(error);
  std::memset(attributes, 0, sizeof *attributes);
  const int capability = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                         attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  attributes->maxThreadsPerBlock = kMaxThreadsPerBlock;
  attributes->numRegs = kRegistersPerThread;
  const spillway::cards::Image* image = image_of(*kernel, device);
  attributes->binaryVersion = image == nullptr || image->ptx ? capability : image->sm;
  attributes->ptxVersion = image == nullptr ? capability : image->sm;
  attributes->maxDynamicSharedSizeBytes = kernel->dynamic_shared_bytes;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return finish(error);
  Kernel* kernel = nullptr;
  if (cudaError_t error = find_loaded(function, &kernel); error != cudaSuccess) return finish(error);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const int limit = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (value < 0 || value > limit) return finish(cudaErrorInvalidValue);
  kernel->dynamic_shared_bytes = value;
  return cudaSuccess;
}

// What is kept in shared memory does not matter to a kernel that does nothing.
cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  return finish(find_kernel(function) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned int) {
  int device = 0;
  if (cudaError_t error = bind_context(); error != cudaSuccess) return finish(error);
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return finish(error);
  Kernel* kernel = nullptr;
  if (cudaError_t error = find_loaded(function, &kernel); error != cudaSuccess) return finish(error);
  if (blocks == nullptr || threads < 1) return finish(cudaErrorInvalidValue);
  *blocks = blocks_per_multiprocessor(device, threads, shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, 0);
}
}
