// What the heaps of all devices of one allocator share: handler, trace and observer, the process's budget,
// the page map and the page file.
//
// Thread-safety: any thread; the last four members are set before the first request, and only read
// afterwards. Ownership: of the page map and the page file; the rest is borrowed. Errors: none.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "allocator/accounting/observer.h"
#include "allocator/accounting/process_budget.h"
#include "allocator/pages/supply/handle_sizes.h"
#include "allocator/request/strategy.h"
#include "allocator/tiers/choice/pins.h"
#include "allocator/tiers/file/page_file.h"
#include "allocator/tiling/page_map.h"
#include "allocator/tiling/pool_memory.h"
#include "allocator/tiling/stream_knowledge.h"
#include "allocator/units.h"
#include "base/mutex.h"
#include "driver/table.h"
#include "trace/writer.h"

namespace spillway {

// Requests that tests let fail.
class Injection {
 public:
  // As Allocator::fail_request.
  uint64_t set(uint64_t n, bool persistent);
  bool armed();
  // Whether this request is one to fail, and whether it must fail for good.
  bool fails(bool* persistent);

 private:
  Mutex<LockOrder::kInjection> mutex_;
  uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  uint64_t seen_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  uint64_t failed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool persistent_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

struct AllocatorContext {
  static constexpr int kMaxDevices = 64;

  explicit AllocatorContext(const driver::Table& driver_table) : table(driver_table) {}

  Pins pinned() const {
    Pins (*const source)() = pins.load();
    return source == nullptr ? Pins{} : source();
  }
  void tell_pressure() {
    if (const auto call = pressure.exchange(nullptr)) call();
  }
  void begin_marks() {
    if (const auto begin = marks_wanted.exchange(nullptr)) begin();
  }
  void tell_host_memory_need() const {
    if (const auto call = host_memory_need.load()) call();
  }
  // Bytes of blocks of other devices that lie on this one. `bytes` is added: modulo 2^64, so also subtracted.
  void count_guest(DeviceId device, uint64_t bytes) {
    guests[static_cast<size_t>(device)].fetch_add(bytes);
    if (budget != nullptr) budget::add(*budget, static_cast<size_t>(device), bytes);
  }

  const driver::Table& table;
  PageMap page_map;
  std::atomic<OomHandler*> handler{nullptr};
  std::atomic<trace::Trace*> trace{nullptr};
  std::atomic<Observer*> observer{nullptr};
  std::atomic<Pins (*)()> pins{nullptr};              // what must not be moved to another tier; see tiers.h
  std::atomic<void (*)()> pressure{nullptr};          // called once, when memory becomes short
  std::atomic<void (*)()> marks_wanted{nullptr};      // see streams/program_streams.h
  std::atomic<void (*)()> host_memory_need{nullptr};  // see tiers.h
  std::atomic<void (*)(int32_t)> collector{nullptr};  // lets go of what others only keep
  StreamKnowledge streams;
  std::atomic<uint64_t> left_to_libraries{0};  // of a card whose libraries take memory by themselves
  std::atomic<uint64_t> incidents{0};
  std::atomic<spillway_incident_totals*> incident_totals{nullptr};
  std::array<std::atomic<uint64_t>, kMaxDevices> guests{};
  Injection injection;
  spillway_budget* budget = nullptr;
  std::unique_ptr<PageFile> page_file;
  bool times_steps = true;  // the device's times mean something
  HandleRule handle_rule;
  DriverMemory driver_memory = DriverMemory::kNoPools;
};

}  // namespace spillway
