// Who is told of each change to a device's blocks and pages: the history that PyTorch's tools read.
//
// Thread-safety: called on the thread that makes the change, from several at once, without the heap's lock;
// for any one address in the order of its changes: pages are told mapped before a block on them is allocated,
// and a block freed before its bytes can be anyone's again. An observer may ask for sums and blocks. It must
// not allocate, free, or wait for a thread that may. Ownership: lives as long as the process.
#pragma once
#include <cstdint>

namespace spillway {

struct BlockInfo;

enum class Change : uint8_t {
  kAllocated,
  kFreeRequested,  // still counted as live
  kFreed,          // at once, or when the last stream that used it is past it
  kMapped,         // pages at an address range: only address, bytes, device, stream and pool say something
  kUnmapped,
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void observe(Change change, const BlockInfo& block) noexcept = 0;
};

}  // namespace spillway
