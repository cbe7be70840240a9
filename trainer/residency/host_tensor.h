// Host memory that copies to and from a device use while kernels run: page-locked, and of the bytes that are
// asked for. LibTorch's own page-locked memory is rounded up to a power of two.
//
// Thread-safety: any thread. Ownership: the memory goes with the last tensor that has it. Errors:
// HostOutOfMemory with the bytes and the driver's reason.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

class HostOutOfMemory : public c10::OutOfMemoryError {
 public:
  HostOutOfMemory(uint64_t bytes, at::Device device, const std::string& text);

  // A failure of the report: the host's, beside those of the allocator's requests. `is_done_again`: with
  // another plan. Its number; 0 without Spillway's allocator.
  uint64_t note(bool is_done_again) const;

 private:
  uint64_t bytes_;
  at::Device device_;  // the memory was for copies to and from it
};

// Uninitialised. Ordinary memory where `device`, which it is copied to and from, is the CPU.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType type, at::Device device);

// Page-locked bytes of all these tensors: now, and the most since the last call of `begin_most`.
struct PageLocked {
  uint64_t now = 0, most = 0;
  static PageLocked bytes();
  static void begin_most();
};
// Bytes for files too: aligned, and in huge pages where the kernel has some. In pages of 4 KiB a block is 256
// pieces for the disk, and less than half as fast. REQUIRES: no copy uses them when the last tensor goes.
at::Tensor disk_tensor(uint64_t bytes, at::Device device);

// Queues a copy to the device of a host's view [rows, numbers] whose rows do not stand together.
void copy_rows(const at::Tensor& to, const at::Tensor& from, c10::Stream stream);

}  // namespace spillway::trainer
