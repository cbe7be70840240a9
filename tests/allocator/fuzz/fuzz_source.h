// A pool's own allocator for fuzzed programs: takes its segments from the driver, of which each call may be
// made to fail.
//
// Thread-safety: any thread. Ownership: of itself, until the allocator ends it; what the driver would not
// take back goes with a later call, of whichever source.
#pragma once
#include <algorithm>
#include <mutex>
#include <vector>

#include "allocator/segments/sources.h"
#include "driver/table.h"

namespace spillway::testing {

class FuzzSource {
 public:
  static spillway_segment_source make(const driver::Table& table) {
    return {sizeof(spillway_segment_source), new FuzzSource(table), &segment_bytes, &allocate, &free, &end};
  }

 private:
  explicit FuzzSource(const driver::Table& table) : table_(table) {}

  static uint64_t segment_bytes(void*, uint64_t bytes) {
    return bytes <= 1 << 20 ? 2 << 20 : std::max(bytes, uint64_t{8} << 20);
  }
  static uint32_t allocate(void* context, uint64_t bytes, uint64_t* address) {
    CUdeviceptr made = 0;
    const CUresult result = static_cast<FuzzSource*>(context)->table_.cuMemAlloc(&made, bytes);
    *address = made;
    if (result == CUDA_SUCCESS) return SPILLWAY_SEGMENT_MADE;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? SPILLWAY_SEGMENT_REFUSED : SPILLWAY_SEGMENT_FAILED;
  }
  static void free(void* context, uint64_t address, uint64_t) {
    static_cast<FuzzSource*>(context)->give_back(address);
  }
  static void end(void* context) {
    auto* const self = static_cast<FuzzSource*>(context);
    self->give_back(0);
    delete self;
  }

  void give_back(uint64_t address) {
    static std::mutex mutex;
    static std::vector<uint64_t> left;
    const std::lock_guard guard(mutex);
    if (address != 0) left.push_back(address);
    std::erase_if(left, [this](uint64_t it) { return table_.cuMemFree(it) == CUDA_SUCCESS; });
  }

  const driver::Table& table_;
};

}  // namespace spillway::testing
