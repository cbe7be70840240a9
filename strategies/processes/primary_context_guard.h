// Devices as a thread of Spillway's own meets them: by uuid, in the contexts that the program made, and never
// in one made for itself.
//
// Thread-safety: each object on one thread. Errors: what cannot be had is "not used".
#pragma once
#include <optional>

#include "driver/table.h"
#include "processes/ledger_entry.h"

namespace spillway {

// 0 before the driver is initialised.
int device_count(const driver::Table& table);
std::optional<DeviceUuid> uuid_of(const driver::Table& table, int ordinal);
// The ordinal of the device in this process; -1: not visible here.
int ordinal_of(const driver::Table& table, const DeviceUuid& device);
// The number of a device on the machine, from 1 on, where CUDA_VISIBLE_DEVICES (null: not set) is `visible`;
// 0: not known, as it names cards otherwise.
uint64_t number_on_machine(const char* visible, int ordinal);

// The device's primary context on this thread, if the process uses it.
class PrimaryContextGuard {
 public:
  PrimaryContextGuard(const driver::Table& table, int ordinal);
  ~PrimaryContextGuard();
  PrimaryContextGuard(const PrimaryContextGuard&) = delete;
  PrimaryContextGuard& operator=(const PrimaryContextGuard&) = delete;
  bool current() const { return current_; }

 private:
  const driver::Table& table_;
  const int ordinal_;
  bool held_ = false, current_ = false;
};

// From here on the process's exit ends the spans below. To be called when the driver was initialised: its
// library takes itself down by a handler of exit too, and those run in the reverse order.
void end_spans_at_exit();
// The same, for the program's thread that starts one of Spillway's: a handler that the new thread adds by
// itself may come when the exit has begun, and libraries that were loaded before (LibTorch's allocator) are
// gone.
void end_spans_before_what_is_loaded();

// A span in which a thread of Spillway's own calls the driver, or loads libraries. None begins from the
// process's exit on, when the driver's library takes itself down. Exit waits for those that have begun, for
// ten seconds at most: the driver's memory would go under a call, and where a library is loaded while exit
// takes libraries down the loader starts those again that it needs and that are down already (LibTorch's end
// the process then, as registered twice).
class DriverSpan {
 public:
  DriverSpan();
  ~DriverSpan();
  DriverSpan(const DriverSpan&) = delete;
  DriverSpan& operator=(const DriverSpan&) = delete;
  bool begun() const { return begun_; }

 private:
  bool begun_ = false;
};

}  // namespace spillway
