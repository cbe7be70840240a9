// The copies of one step of a move, queued in shares. A call of the driver that changes mappings may wait for
// every copy that is queued: what is queued after it is what the next such call runs beside.
//
// Thread-safety: none. Ownership: the device must outlive it. Errors: CUresult, of the first that failed.
// Units: bytes, microseconds.
#pragma once
#include <cstdint>
#include <vector>

#include "allocator/pages/device.h"

namespace spillway {

class StepCopies {
 public:
  void add(uint64_t to, uint64_t from, uint64_t bytes) {
    waiting_.push_back({to, from, bytes});
    bytes_ += bytes;
  }
  // Of all that was added, so that the shares add up to 1.
  void begin_share(Device& device, double share) {
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(bytes_));
    begin(device, (bytes + kCutBytes - 1) / kCutBytes * kCutBytes);
  }
  void begin_rest(Device& device) { begin(device, UINT64_MAX); }
  // Those that were begun; after an error the others are left out. `us`: what the copies alone took.
  CUresult wait(Device& device, double* us);

 private:
  struct Waiting {
    uint64_t to, from, bytes;
  };
  static constexpr uint64_t kCutBytes = 64 << 10;
  void begin(Device& device, uint64_t bytes);

  std::vector<Waiting> waiting_;  // the next first
  size_t next_ = 0;
  uint64_t bytes_ = 0;
  std::vector<CopyStream::Copy> begun_;
  CUresult error_ = CUDA_SUCCESS;
};

}  // namespace spillway
