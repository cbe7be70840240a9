// LibTorch 2.11's CUDAAllocator, and what newer versions added to it as hooks that do nothing here:
// since_2_12.h to since_2_14.h make them real, each in the shims of its version and later. 2.15 added no
// virtual function.
//
// Thread-safety: as LibTorch's. Ownership: a base of the one Allocator, never destroyed.
#pragma once
#include "libtorch/allocator/versions/since_2_10.h"

namespace spillway::libtorch {

class Since2_11 : public Since2_10 {
 protected:
  // A request that was not served, and what the device had then. Units: bytes.
  struct Refusal {
    size_t asked = 0, allocated = 0, total = 0;
  };
  // What the parts that newer versions added need of the allocator.
  virtual Context context_of(const void* block) = 0;
  virtual void annotate_block(const void* block, const std::string& metadata) = 0;
  // Null: the address is not free in the memory of the current stream and pool.
  virtual void* allocate_at(size_t bytes, void* address) = 0;

  void refused(c10::DeviceIndex, const Refusal&) {}
};

}  // namespace spillway::libtorch
