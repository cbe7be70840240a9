// What null mode knows of a device's bytes: small copies from the host, and what copies and collectives made
// of them, until a kernel runs, which may have written anything. So programs that tell each other sizes
// through device memory, as DistributedDataParallel does when it is made, find them. The host reads what a
// collective brought and nothing else: what it put there itself reads as zeros, or else memory that was used
// again would show what lay there, and a value would depend on where the allocator put a block.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: copies. Errors: what is too
// large is not known. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <vector>

namespace spillway::simulator {

enum class Origin { kHost, kCollective };

class KnownBytes {
 public:
  static constexpr uint64_t kLargest = uint64_t{1} << 20, kMost = uint64_t{16} << 20;

  void put(CUdeviceptr address, const void* bytes, uint64_t size, Origin origin);
  // True when all of it is known; with `kCollective`, from collectives.
  bool get(CUdeviceptr address, void* out, uint64_t size, Origin least) const;
  void erase(CUdeviceptr address, uint64_t size);
  void clear();
  bool empty() const { return ranges_.empty(); }

 private:
  struct Range {
    std::vector<char> bytes;
    Origin origin;
  };
  std::map<CUdeviceptr, Range> ranges_;  // none overlaps another
  uint64_t total_ = 0;
};

struct Device;

// The same for whatever device has the memory; nothing in computing mode and for host addresses.
void know(CUdeviceptr address, const void* bytes, uint64_t size, Origin origin);
bool known(CUdeviceptr address, void* out, uint64_t size, Origin least);
void forget(CUdeviceptr address, uint64_t size);
// A kernel ran: it may have written to any device.
void forget_all();
// Between device addresses.
void copy_known(CUdeviceptr target, CUdeviceptr source, uint64_t size);

}  // namespace spillway::simulator
