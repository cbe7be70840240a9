#include "simulator/libraries/handle_memory.h"

#include <set>

#include "base/mutex.h"
#include "simulator/libraries/computation.h"
#include "simulator/libraries/labelled_page.h"

namespace spillway::stand_in {
namespace {

// With its context, as a library's own call of the runtime makes it.
cudaError_t current_device(int* device) {
  if (cudaError_t error = taken(cudaGetDevice(device)); error != cudaSuccess) return error;
  if (cudaError_t error = taken(cudaFree(nullptr)); error != cudaSuccess) return error;
  return control() == nullptr ? cudaErrorInsufficientDriver : cudaSuccess;
}

cudaError_t take(int device, const char* label, uint64_t bytes, CUmemGenericAllocationHandle* page) {
  switch (make_labelled_page(device, label, bytes, page)) {
    case CUDA_SUCCESS:
      return cudaSuccess;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return cudaErrorMemoryAllocation;
    default:
      return cudaErrorInitializationError;
  }
}

// The library's code on each device: never destroyed, since programs may still call while they exit.
struct Code {
  Mutex<LockOrder::kSimulatedCode> mutex;
  std::set<int> devices SPILLWAY_GUARDED_BY(mutex);
};
Code& code() {
  static auto* const all = new Code;
  return *all;
}

}  // namespace

cudaError_t HandleMemory::charge(const char* label, uint64_t bytes) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  return take(device, label, bytes, &page_);
}

cudaError_t HandleMemory::charge_row(const char* row) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  return charge(row, control()->overhead(device, row));
}

HandleMemory::~HandleMemory() {
  release_labelled_page(page_);
}

cudaError_t charge_code(const char* row) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  const Locked lock(code().mutex);
  if (code().devices.contains(device)) return cudaSuccess;
  CUmemGenericAllocationHandle stays = 0;  // as modules do
  const cudaError_t error = take(device, row, control()->overhead(device, row), &stays);
  if (error == cudaSuccess) code().devices.insert(device);
  return error;
}

}  // namespace spillway::stand_in
