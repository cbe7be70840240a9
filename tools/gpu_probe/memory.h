// Addresses and pages by the driver's calls: each gives back what it took when it ends.
//
// Thread-safety: none; a value belongs to one thread. Errors: the first failed call is kept in `result`, and
// what follows it is not tried.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/gpu_probe/driver.h"

namespace spillway::probe {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Where pages are made, and with what.
struct Kind {
  CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE;
  int id = 0;
  bool descriptor = false;  // can be exported as a file descriptor
  bool rdma = false;        // may be registered with a network card
};

Kind on_device();
// The kind of host memory that this driver takes; tried once: the device's node, node 0, then the host. The
// type is DEVICE if it takes none.
Kind on_host();
bool has_host_pages();
// Prints that there are none here, once a part. Returns whether there are.
bool host_pages_or_say();

CUmemAllocationProp properties(const Kind& kind);
CUresult create(CUmemGenericAllocationHandle& out, uint64_t bytes, const Kind& kind);
CUresult allow(CUdeviceptr address, uint64_t bytes);  // the device reads and writes there

class Range {
 public:
  explicit Range(uint64_t bytes);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  CUdeviceptr base = 0;
  const uint64_t bytes;
  CUresult result;
};

// Addresses with pages behind them, one after another.
class Mapped {
 public:
  Mapped(uint64_t page_bytes, int pages, const Kind& kind);
  // Pages of two kinds: of the first so many, then of the other.
  Mapped(uint64_t page_bytes, int first, const Kind& kind, int second, const Kind& other);
  ~Mapped();
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  CUdeviceptr base() const { return range_.base; }
  uint64_t bytes() const { return range_.bytes; }
  // Puts pages of another kind behind the whole range; what was there is lost.
  CUresult remap(const Kind& kind);
  CUresult result = CUDA_SUCCESS;

 private:
  CUresult map(int first, int count, const Kind& kind);
  void unmap();
  const uint64_t page_bytes_;
  Range range_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  uint64_t mapped_ = 0;
};

// Free bytes of the device, or 0.
uint64_t free_bytes();

}  // namespace spillway::probe
