// Device memory that a library takes for itself, outside the program's allocator. How much is in one table,
// simulator/cards/overheads.inc, which also says how certain each figure is; what follows from the arguments
// of a call, such as the work area of a transform, is its stand-in's to know.
//
// It is taken by driver calls (labelled_page.h), under the name of its row in that table.
//
// Thread-safety: HandleMemory as its handle; `charge_code` any thread. Ownership: HandleMemory gives back
// what it holds when it dies; code stays, as modules do. Errors: cudaErrorMemoryAllocation when the card has
// no room. Units: bytes.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::stand_in {

class HandleMemory {
 public:
  HandleMemory() = default;
  ~HandleMemory();
  HandleMemory(const HandleMemory&) = delete;
  HandleMemory& operator=(const HandleMemory&) = delete;

  // Charges the current device, whose context it makes current as the library's own allocation would. Once.
  // `label` and `row` are literals.
  cudaError_t charge(const char* label, uint64_t bytes);
  cudaError_t charge_row(const char* row);

 private:
  CUmemGenericAllocationHandle page_ = 0;
};

// What a process pays once for each device when it first uses the library.
cudaError_t charge_code(const char* row);

}  // namespace spillway::stand_in
