// A program that needs the driver of CUDA 12.2 and no runtime: the device's stream-ordered pool keeps what it
// has freed, and then plain memory is short. Prints how much of it there was; ends with 1 where a call
// failed.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kCudaVersion = 12020;
constexpr size_t kMiB = size_t{1} << 20, kBlock = 64 * kMiB;

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
GetProcAddress get_proc_address = nullptr;

template <class Function, class... Arguments>
void call(const char* name, Arguments... arguments) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult result = get_proc_address(name, &found, kCudaVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  if (result == CUDA_SUCCESS && found == nullptr) result = CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_SUCCESS) result = reinterpret_cast<Function>(found)(arguments...);
  if (result == CUDA_SUCCESS) return;
  std::printf("%s gave %d\n", name, static_cast<int>(result));
  std::exit(1);
}
#define CALL(name, ...) call<decltype(&(name))>(#name, __VA_ARGS__)

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver != nullptr)
    get_proc_address = reinterpret_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
  if (get_proc_address == nullptr) return 1;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUstream stream = nullptr;
  size_t free = 0, total = 0;
  CALL(cuInit, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, 0);
  CALL(cuCtxSetCurrent, context);
  CALL(cuDeviceGetDefaultMemPool, &pool, 0);
  cuuint64_t never = UINT64_MAX;
  CALL(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &never);
  CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  CALL(cuMemGetInfo, &free, &total);
  std::vector<CUdeviceptr> blocks(free / kBlock / 2);
  for (CUdeviceptr& block : blocks) CALL(cuMemAllocAsync, &block, kBlock, stream);
  for (const CUdeviceptr block : blocks) CALL(cuMemFreeAsync, block, stream);
  CALL(cuStreamSynchronize, stream);
  CUdeviceptr most = 0;
  CALL(cuMemAlloc, &most, free - kBlock);
  std::printf("%zu MiB while the pool kept %zu\n", (free - kBlock) / kMiB, blocks.size() * kBlock / kMiB);
  CALL(cuMemFree, most);
  return 0;
}
