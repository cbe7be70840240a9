// ncclMemAlloc: pages of the driver, shareable and open to every card that can reach them, as NCCL makes
// them.
#include <cuda.h>
#include <nccl.h>

#include <map>
#include <vector>

#include "base/mutex.h"
#include "simulator/libraries/nccl/api/exports.h"
#include "simulator/libraries/nccl/device.h"
#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {
namespace {

// The driver's functions, as the loader and whoever watches it give them.
struct Pages {
// NOLINTBEGIN(bugprone-macro-parentheses): a name being declared takes none.
#define SPILLWAY_NCCL_PAGE_FUNCTION(name) \
  decltype(&::name) name = reinterpret_cast<decltype(&::name)>(driver_function(#name));
  // NOLINTEND(bugprone-macro-parentheses)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemGetAllocationGranularity)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemCreate)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemRelease)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemAddressReserve)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemAddressFree)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemMap)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemUnmap)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuMemSetAccess)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuCtxSynchronize)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuDeviceGetCount)
  SPILLWAY_NCCL_PAGE_FUNCTION(cuDeviceCanAccessPeer)
#undef SPILLWAY_NCCL_PAGE_FUNCTION
};

const Pages& pages() {
  static const Pages found;
  return found;
}

struct Allocation {
  size_t bytes;
  CUmemGenericAllocationHandle page;
};
Mutex<LockOrder::kLibraryHandles> mutex;
std::map<void*, Allocation>& allocations() SPILLWAY_REQUIRES(mutex) {
  static auto* const all = new std::map<void*, Allocation>;
  return *all;
}

std::vector<CUmemAccessDesc> everybody_who_can(int device) {
  std::vector<CUmemAccessDesc> found;
  int count = 0;
  pages().cuDeviceGetCount(&count);
  for (int other = 0; other < count; ++other) {
    int can = other == device;
    if (!can) pages().cuDeviceCanAccessPeer(&can, other, device);
    if (can)
      found.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other},
                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return found;
}

// Undoes what succeeded when a later step fails.
CUresult map_page(int device, Allocation& made, CUdeviceptr* address) {
  CUresult result = pages().cuMemAddressReserve(address, made.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = pages().cuMemMap(*address, made.bytes, 0, made.page, 0);
  if (result == CUDA_SUCCESS) {
    const auto access = everybody_who_can(device);
    result = pages().cuMemSetAccess(*address, made.bytes, access.data(), access.size());
    if (result != CUDA_SUCCESS) pages().cuMemUnmap(*address, made.bytes);
  }
  if (result != CUDA_SUCCESS) pages().cuMemAddressFree(*address, made.bytes);
  return result;
}

ncclResult_t refused(CUresult result, size_t bytes) {
  return fail(ncclUnhandledCudaError, "ncclMemAlloc of " + std::to_string(bytes) +
                                          " bytes: the driver says error " + std::to_string(result));
}

ncclResult_t allocate(int device, size_t bytes, void** out) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granule = 0;
  CUresult result =
      pages().cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS || bytes > SIZE_MAX - granule) return refused(CUDA_ERROR_OUT_OF_MEMORY, bytes);
  Allocation made{.bytes = (bytes + granule - 1) / granule * granule, .page = 0};
  result = pages().cuMemCreate(&made.page, made.bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return refused(result, bytes);
  CUdeviceptr address = 0;
  result = map_page(device, made, &address);
  if (result != CUDA_SUCCESS) {
    pages().cuMemRelease(made.page);
    return refused(result, bytes);
  }
  *out = reinterpret_cast<void*>(address);
  const spillway::Locked lock(mutex);
  allocations()[*out] = made;
  return ncclSuccess;
}

}  // namespace
}  // namespace spillway::nccl

using namespace spillway::nccl;

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  if (!ptr || size == 0) return fail(ncclInvalidArgument, "ncclMemAlloc: no pointer, or no bytes");
  const int device = current_device();
  if (device < 0) return fail(ncclUnhandledCudaError, "ncclMemAlloc: there is no device");
  if (!pages().cuMemCreate) return fail(ncclUnhandledCudaError, "ncclMemAlloc: the driver has no pages");
  return allocate(device, size, ptr);
}

ncclResult_t ncclMemFree(void* ptr) {
  if (!ptr) return fail(ncclInvalidUsage, "ncclMemFree: no pointer");
  Allocation gone{};
  {
    const spillway::Locked lock(mutex);
    const auto found = allocations().find(ptr);
    if (found == allocations().end()) return fail(ncclInvalidUsage, "ncclMemFree: not from ncclMemAlloc");
    gone = found->second;
    allocations().erase(found);
  }
  const auto address = reinterpret_cast<CUdeviceptr>(ptr);
  pages().cuCtxSynchronize();  // unmapping does not wait
  pages().cuMemUnmap(address, gone.bytes);
  pages().cuMemRelease(gone.page);
  pages().cuMemAddressFree(address, gone.bytes);
  return ncclSuccess;
}

SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclMemFree, (void* ptr))
