#include "strategies/processes/process_service.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/service_thread.h"
#include "driver/table.h"
#include "strategies/core/environment.h"
#include "strategies/core/free_bytes.h"
#include "strategies/core/process.h"
#include "strategies/evict_guests.h"
#include "strategies/framework/deadline_worker.h"
#include "strategies/framework/framework.h"
#include "strategies/processes/primary_context_guard.h"
#include "strategies/processes/status_publisher.h"
#include "strategies/sites/holders_told.h"

namespace spillway {
namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kMostTime = std::chrono::seconds(2);
constexpr uint64_t kAhead = 256 << 20;  // who asks for a little asks again soon
std::atomic<Ledger*> joined{nullptr};
std::atomic<bool> has_changed{false};  // what others have to see soon

std::vector<Holding> holdings(const driver::Table& table) {
  std::vector<Holding> out;
  const int count = device_count(table);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const PrimaryContextGuard device(table, ordinal);
    if (device.current()) out.push_back(holding_of(ordinal));
  }
  return out;
}

// LibTorch's allocator holds its lock while it calls the driver, and so while one of its calls asks the other
// processes. Who waited for the lock then could not answer them, and each would wait for the other.
void give_framework_cache(const driver::Table& table, int ordinal) {
  const auto asks = [] { return ProcessService::ledger() != nullptr && ProcessService::ledger()->asks(); };
  DeadlineWorker::of<ProcessService>().run(
      [&table, ordinal] {
        stay_out_of_captures(table);
        const PrimaryContextGuard device(table, ordinal);
        if (device.current()) empty_framework_cache();
      },
      std::chrono::steady_clock::now() + kMostTime, asks);
}

// What this process's other devices keep there.
uint64_t evict(int ordinal, uint64_t bytes) {
  Process& process = Process::get();
  Allocator* allocator = process.allocator();
  const DriverSpan span;
  if (allocator == nullptr || !span.begun()) return 0;
  return evict_guests_for_others(*allocator, *process.ladder(), process.spill_limits(), DeviceId{ordinal},
                                 bytes, std::chrono::steady_clock::now() + kMostTime);
}

void give_pages(const driver::Table& table, int ordinal, uint64_t bytes, uint64_t guarantee_bytes) {
  const DriverSpan span;
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr || !span.begun()) return;
  const PrimaryContextGuard device(table, ordinal);
  if (!device.current()) return;
  const Holding holding = holding_of(ordinal);
  const ReleasePlan gift = release_plan_of(holding, guarantee_bytes);
  const uint64_t most = gift.every_page ? holding.cached_bytes : gift.bytes;
  if (most != 0)
    allocator->empty_cache(DeviceId{ordinal}, gift.every_page ? kEveryPool : 0,
                           std::min(most, bytes + kAhead));
}

// Nothing where the process does not use the device.
std::optional<size_t> free_on(const driver::Table& table, int ordinal) {
  const DriverSpan span;
  if (!span.begun()) return std::nullopt;
  const PrimaryContextGuard device(table, ordinal);
  return device.current() ? std::optional(free_bytes(table)) : std::nullopt;
}

struct Asked {
  int ordinal = -1;
  bool framework_may_give = false;
};

Asked asked_for(const driver::Table& table, const Ledger::Need& need, uint64_t guarantee_bytes) {
  const DriverSpan span;
  const int ordinal = span.begun() ? ordinal_of(table, need.device) : -1;
  if (ordinal < 0) return {};
  prepare_framework();
  return {ordinal, framework_may_give(holdings(table), guarantee_bytes)};
}

// What is idle before what is in use: pages, no more than is needed; the framework's cache, which goes whole;
// guests, which may be where the process has no context of its own. What another process took meanwhile was
// not given.
uint64_t give(const driver::Table& table, const Ledger::Need& need, uint64_t guarantee_bytes) {
  const Asked asked = asked_for(table, need, guarantee_bytes);
  if (asked.ordinal < 0) return 0;
  const std::optional<size_t> before = free_on(table, asked.ordinal);
  if (!before) return evict(asked.ordinal, need.bytes);
  const auto given = [&]() -> uint64_t {
    const size_t now = free_on(table, asked.ordinal).value_or(0);
    return now > *before ? now - *before : 0;
  };
  give_pages(table, asked.ordinal, need.bytes, guarantee_bytes);
  if (given() < need.bytes && asked.framework_may_give && framework_is_prepared())
    give_framework_cache(table, asked.ordinal);
  if (given() < need.bytes) evict(asked.ordinal, need.bytes);
  return given();
}

void tell_holders(HoldersTold* told) {
  Allocator* allocator = Process::get().allocator();
  if (allocator != nullptr) told->tell_when_due(*allocator, HoldersTold::Clock::now());
}

void serve(Ledger& ledger, uint32_t (*captures)(), uint64_t guarantee_bytes) {
  StatusPublisher publisher(ledger, guarantee_bytes);
  HoldersTold told;
  for (;;) {
    Ledger::Need need;
    const bool asked = ledger.wait_for_need(&need, kTick);
    const driver::Table* table = driver::process_table(nullptr);
    if (table != nullptr) stay_out_of_captures(*table);
    const bool may_call_driver = table != nullptr && captures() == 0;
    const uint64_t given = asked && may_call_driver ? give(*table, need, guarantee_bytes) : 0;
    // Who gave shows first what is left, so that it is not asked for that again; who did not lets nobody
    // wait.
    if (asked && given == 0) ledger.answer(need, 0);
    publisher.publish(may_call_driver, /*now=*/has_changed.exchange(false) || given != 0);
    if (given != 0) ledger.answer(need, given);
    tell_holders(&told);
  }
}

bool start_thread(Ledger& ledger, uint32_t (*captures)(), uint64_t guarantee_bytes, std::string* why_not) {
  std::string error;
  const auto work = [&ledger, captures, guarantee_bytes] { serve(ledger, captures, guarantee_bytes); };
  if (start_service_thread(work, &error)) return true;
  *why_not = "no thread for the ledger: " + error;
  return false;
}

}  // namespace

bool ProcessService::start(uint32_t (*captures)(), std::string* why_not) {
  static Mutex<LockOrder::kLedgerStart> mutex;
  const Locked guard(mutex);
  if (joined.load() != nullptr) return true;
  const std::string name = ledger_name();
  if (captures == nullptr || name.empty()) {
    *why_not = "SPILLWAY_LEDGER is off";
    return false;
  }
  Environment environment;
  if (!read_environment(&environment, why_not)) return false;
  std::unique_ptr<Ledger> ledger = Ledger::join(name, why_not);
  end_spans_before_what_is_loaded();
  if (ledger == nullptr || !start_thread(*ledger, captures, environment.guarantee_bytes, why_not))
    return false;
  joined.store(ledger.release());  // for ever: the thread uses it
  return true;
}

Ledger* ProcessService::ledger() {
  return joined.load();
}

void ProcessService::show_soon() {
  has_changed.store(true);
  if (Ledger* const ledger = joined.load()) ledger->wake_members();
}

}  // namespace spillway
