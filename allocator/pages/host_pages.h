// Host memory that one device can use, as pages. Where it can be made is tried when the first page is wanted,
// and not when a program starts: some drivers crash in that call (NVIDIA/nccl#2106), and most programs never
// spill. Pages are mapped for the CPU too where the driver allows that, because the driver tells libraries
// that they are host memory.
//
// Thread-safety: any thread, in the device's context, without the heap's lock. Ownership: a page is the
// caller's to release. Errors: CUresult; not supported where no place works. Units: bytes.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "driver/host_pages.h"
#include "driver/table.h"

namespace spillway {

class HostPages {
 public:
  explicit HostPages(const driver::Table& table) : table_(table) {}

  CUresult create(CUdevice device, uint64_t trial_bytes, uint64_t bytes,
                  CUmemGenericAllocationHandle* handle);
  // A page that is about to be released.
  void forget(CUmemGenericAllocationHandle handle);
  // What a page has to be mapped with beside the devices' access; nothing for other pages.
  std::optional<CUmemAccessDesc> cpu_access(CUmemGenericAllocationHandle handle) const;

 private:
  CUresult find_place(CUdevice device, uint64_t trial_bytes) SPILLWAY_REQUIRES(mutex_);

  const driver::Table& table_;
  mutable Mutex<LockOrder::kHostPages> mutex_;
  bool tried_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::optional<driver::HostPlace> place_ SPILLWAY_GUARDED_BY(mutex_);
  // By page, because a later page may be of another place.
  std::unordered_map<CUmemGenericAllocationHandle, std::optional<CUmemAccessDesc>> made_
      SPILLWAY_GUARDED_BY(mutex_);
  std::atomic<bool> any_made_{false};  // until then nobody takes the lock
};

}  // namespace spillway
