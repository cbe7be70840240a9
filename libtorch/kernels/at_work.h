// A kernel's computing, for Spillway's preloaded library: kernels compute here after they were submitted, and
// no call of the driver's tells of that. Meanwhile no pages are moved.
//
// Thread-safety: any thread; an object belongs to one. Errors: none; without the preloaded library it does
// nothing.
#pragma once
#include <cstdint>

namespace spillway::kernels {

enum class Work : uint32_t { kPaused, kUnderWay };

// While one lives the thread is at work, or within that not: while it asks for memory, others may need the
// pages of its kernel to be moved, which keeps their bytes and addresses.
class AtWork {
 public:
  explicit AtWork(Work work = Work::kUnderWay) noexcept;
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  uint32_t before_;
};

}  // namespace spillway::kernels
