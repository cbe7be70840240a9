// Two pieces of pinned host memory between a device and a file, so that a copy and a transfer overlap.
//
// Thread-safety: none. Ownership: given back by `give_back`, in the device's context. Errors: CUresult.
#pragma once
#include <array>
#include <cstddef>

#include "allocator/pages/device.h"
#include "allocator/tiers/file/page_file.h"

namespace spillway {

class FileBuffers {
 public:
  static constexpr uint64_t kPages = 4;  // of each

  // Made when first needed, and kept.
  CUresult make(Device& device) {
    if (memory_ != nullptr) return CUDA_SUCCESS;
    const CUresult result = device.allocate_host(2 * kBytes + PageFile::kAlignment, &memory_);
    if (result != CUDA_SUCCESS) memory_ = nullptr;
    return result;
  }
  void give_back(Device& device) {
    if (memory_ != nullptr) device.free_host(memory_);
    memory_ = nullptr;
  }
  std::byte* at(uint64_t which) const {
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    const uintptr_t skipped = (PageFile::kAlignment - address % PageFile::kAlignment) % PageFile::kAlignment;
    return static_cast<std::byte*>(memory_) + skipped + which % 2 * kBytes;
  }

 private:
  static constexpr uint64_t kBytes = kPages * PageFile::kPageBytes;
  void* memory_ = nullptr;
};

}  // namespace spillway
