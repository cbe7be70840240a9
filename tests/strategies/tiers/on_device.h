// Makes a device's primary context current for a scope.
//
// Thread-safety: the thread's own. Ownership: the table must outlive it.
#pragma once
#include "allocator/units.h"
#include "driver/table.h"

namespace spillway::testing::tiers {

class OnDevice {
 public:
  OnDevice(const driver::Table& table, DeviceId device) : table_(table), device_(static_cast<int>(device)) {
    CUcontext context = nullptr;
    table_.cuDevicePrimaryCtxRetain(&context, device_);
    table_.cuCtxPushCurrent(context);
  }
  ~OnDevice() {
    CUcontext context = nullptr;
    table_.cuCtxPopCurrent(&context);
    table_.cuDevicePrimaryCtxRelease(device_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const driver::Table& table_;
  int device_;
};

}  // namespace spillway::testing::tiers
