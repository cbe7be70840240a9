// The CPU allocator's memory, taken from the CUDA allocator while a CPU kernel computes for CUDA tensors.
//
// The redirection holds for the calling thread only: worker threads of a CPU kernel allocate ordinary host
// memory. Thread-safety: blocks may be freed by any thread. Errors: an allocation throws what the CUDA
// allocator throws (c10::OutOfMemoryError); frees never throw anything of their own. Units: bytes.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace spillway::kernels {

// Puts the redirecting allocator in front of the CPU allocator. Call once.
void install_redirect();

// The allocator that `install_redirect` put in place, for storages that a CPU kernel may resize.
c10::Allocator* redirecting_allocator();

// While one lives, CPU allocations of this thread come from the CUDA allocator, on the current device and
// stream.
class RedirectScope {
 public:
  RedirectScope() noexcept;
  ~RedirectScope();
  RedirectScope(const RedirectScope&) = delete;
  RedirectScope& operator=(const RedirectScope&) = delete;

 private:
  bool outer_;
};

// While one lives within a RedirectScope, CPU allocations of this thread are the host's again: for
// temporaries that a CUDA kernel has in registers.
class HostScope {
 public:
  HostScope() noexcept;
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  bool outer_;
};

// Is the block behind `data` one that came from the CUDA allocator through a RedirectScope?
bool is_redirected(const c10::DataPtr& data) noexcept;

// Turns such a block into what the CUDA allocator itself would have returned.
c10::DataPtr to_device_block(c10::DataPtr data, c10::Device device);

}  // namespace spillway::kernels
