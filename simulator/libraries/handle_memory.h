// Device memory that a library's handle takes for itself, outside the program's allocator.
//
//   library    | bytes of a handle               | source
//   cuBLAS     | 4 MiB; 32 MiB on capability 9;  | documented: "cublasSetWorkspace", default workspace size
//              | 12 MiB on 10 and later          |
//   cuDNN      | 2 MiB                           | modelled: one granule; not measured yet
//   cuSOLVER   | a cuBLAS handle's               | modelled: it keeps one for its products; not measured yet
//   cuSPARSE   | 2 MiB                           | modelled: one granule; not measured yet
//   cuSPARSELt | 2 MiB                           | modelled: one granule; not measured yet
//   cuFFT      | 2 MiB with the first plan       | modelled: one granule for tables of twiddle factors
//
// They are charged through the simulator's control interface under the library's name. Modules that are
// loaded lazily are not in here.
//
// Thread-safety: as that of the handle. Ownership: HandleMemory gives back what it holds when it dies.
// Errors: cudaErrorMemoryAllocation when the card has no room. Units: bytes.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace spillway::stand_in {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGranule = 2 * kMiB;

// cuBLAS's default workspace on the current device.
uint64_t cublas_handle_bytes();

class HandleMemory {
 public:
  HandleMemory() = default;
  ~HandleMemory();
  HandleMemory(const HandleMemory&) = delete;
  HandleMemory& operator=(const HandleMemory&) = delete;

  // Charges the current device, whose context it makes current as the library's own allocation would. Once.
  // `label` is a literal.
  cudaError_t charge(const char* label, uint64_t bytes);

 private:
  const char* label_ = nullptr;
  int device_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace spillway::stand_in
