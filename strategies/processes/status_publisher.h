// What this process shows of itself in the ledger: its name, what it holds of each device, what it met.
//
// Thread-safety: one thread, a Spillway one. Ownership: borrows the ledger. Errors: none; what is not known
// is left out. It makes no context, and calls the driver only where the program has one.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "driver/table.h"
#include "processes/ledger.h"
#include "strategies/ladder/ladder.h"
#include "strategies/processes/free_memory.h"
#include "strategies/processes/release_plan.h"

namespace spillway {

// What the process holds of a device that it uses. `driver_free`: what the driver has left there, where the
// caller knows; else the driver is asked.
Holding holding_of(int ordinal, std::optional<uint64_t> driver_free = std::nullopt);

class StatusPublisher {
 public:
  StatusPublisher(Ledger& ledger, uint64_t guarantee_bytes);
  // At most some twenty times a second, unless it must be now; sooner calls do nothing. `may_call_driver`: no
  // stream is captured; with one the process gives nothing.
  void publish(bool may_call_driver, bool now);

 private:
  void show_devices(const driver::Table& table);
  bool show_device(const driver::Table& table, int ordinal, LedgerDevice* device, Holding* holding);
  void show_ladder(Ladder& ladder);
  void look_for_framework();

  Ledger& ledger_;
  LedgerEntry entry_;
  std::optional<std::string> visible_;  // CUDA_VISIBLE_DEVICES
  FreeMemory free_memory_;
  bool replaces_ = false;  // LibTorch's allocator is to be Spillway's
  std::chrono::steady_clock::time_point next_, next_look_;
};

}  // namespace spillway
