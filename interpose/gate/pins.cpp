#include "interpose/gate/pins.h"

#include <atomic>

#include "interpose/core.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/plain_lock.h"

namespace spillway::interpose {
namespace {

// What holds a pin, and the pinned address. Where it is full the memory stays pinned: it then only stays
// where it is.
class PinTable {
 public:
  void add(uint64_t holder, uint64_t address) {
    const Locked lock(lock_);
    if (const uint32_t count = count_.load(); count < kMost) {
      pins_[count] = {holder, address};
      count_.store(count + 1);
    }
  }
  // The address; 0: it is not in it.
  uint64_t take_out(uint64_t holder) {
    if (count_.load(std::memory_order_relaxed) == 0) return 0;
    uint64_t address = 0;
    const Locked lock(lock_);
    const uint32_t count = count_.load();
    for (uint32_t i = 0; i < count && address == 0; ++i) {
      if (pins_[i].holder != holder) continue;
      address = pins_[i].address;
      pins_[i] = pins_[count - 1];
      count_.store(count - 1);
    }
    return address;
  }

 private:
  static constexpr uint32_t kMost = 4096;
  struct Pin {
    uint64_t holder, address;
  };
  PlainMutex<LockOrder::kLeaf> lock_;
  std::atomic<uint32_t> count_{0};
  Pin pins_[kMost] SPILLWAY_GUARDED_BY(lock_);
};

PinTable handles, regions;

}  // namespace

void pin_handle(CUmemGenericAllocationHandle handle, uint64_t address) {
  if (pin(address, 1)) handles.add(handle, address);
}

void unpin_handle(CUmemGenericAllocationHandle handle) {
  if (const uint64_t address = handles.take_out(handle); address != 0) unpin(address);
}

void keep_pinned(CUmemGenericAllocationHandle handle) {
  handles.take_out(handle);
}

void pin_range(uint64_t address, uint64_t bytes) {
  pin(address, bytes);
}

// Libraries round to pages of the host: what begins beside a block lies in the device's memory all the same.
static bool is_device_memory(uint64_t address) {
  unsigned type = 0;
  return real().cuPointerGetAttribute != nullptr &&
         real().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

bool pin_block(uint64_t address, uint64_t bytes) {
  return (is_block(address) || is_device_memory(address)) && pin(address, bytes);
}

void unpin_block(uint64_t address) {
  unpin(address);
}

void pin_belongs_to(const void* region, uint64_t address) {
  if (region == nullptr) return unpin(address);
  regions.add(reinterpret_cast<uint64_t>(region), address);
}

uint64_t take_pin_of(const void* region) {
  return regions.take_out(reinterpret_cast<uint64_t>(region));
}

}  // namespace spillway::interpose
