#include "strategies/peer_service.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

#include "spillway/driver/table.h"
#include "strategies/environment.h"
#include "strategies/evict_guests.h"
#include "strategies/framework.h"
#include "strategies/free_bytes.h"
#include "strategies/helper.h"
#include "strategies/process.h"
#include "strategies/publisher.h"
#include "strategies/used_device.h"

namespace spillway {
namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kMostTime = std::chrono::seconds(2);
std::atomic<Ledger*> joined{nullptr};

// LibTorch's own allocator empties its cache on every device at once, so the guarantee must allow it on each.
bool framework_may_give(const driver::Table& table, uint64_t guarantee_bytes) {
  const int count = guarantee_bytes == 0 ? 0 : device_count(table);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const UsedDevice device(table, ordinal);
    if (!device.current()) continue;
    const Holding holding = holding_of(ordinal);
    const bool idle = holding.framework && holding.framework->held_bytes <= holding.framework->used_bytes;
    if (!idle && !gift_of(holding, guarantee_bytes).framework) return false;
  }
  return true;
}

void give_pages(int ordinal, const Gift& gift) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return;
  if (gift.every_page)
    allocator->empty_cache(DeviceId{ordinal});
  else
    allocator->empty_cache(DeviceId{ordinal}, 0, gift.bytes);
}

// LibTorch's allocator holds its lock while it calls the driver, and so while one of its calls asks the other
// processes. Who waited for the lock then could not answer them, and each would wait for the other.
void give_framework_cache(const driver::Table& table, int ordinal) {
  static auto* const helper = new Helper;  // never destroyed: its thread may outlive every static object
  const auto asks = [] { return PeerService::ledger() != nullptr && PeerService::ledger()->asks(); };
  helper->run(
      [&table, ordinal] {
        stay_out_of_captures(table);
        const UsedDevice device(table, ordinal);
        if (device.current()) empty_framework_cache();
      },
      std::chrono::steady_clock::now() + kMostTime, asks);
}

struct Room {
  bool known = false, framework_may_give = false;
  size_t free_bytes = 0;
};

Room room_of(const driver::Table& table, int ordinal, uint64_t guarantee_bytes) {
  const bool framework = framework_may_give(table, guarantee_bytes);
  const UsedDevice device(table, ordinal);
  if (!device.current()) return {};
  return {true, framework, free_bytes(table)};
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

uint64_t give(const driver::Table& table, const Ledger::Need& need, uint64_t guarantee_bytes) {
  int ordinal = -1;
  Room before;
  {
    const DriverSpan span;
    ordinal = span.begun() ? ordinal_of(table, need.device) : -1;
    if (ordinal < 0) return 0;
    prepare_framework();
    before = room_of(table, ordinal, guarantee_bytes);
  }
  const uint64_t evicted = evict(ordinal, need.bytes);
  if (!before.known) return evicted;
  if (before.framework_may_give && framework_is_prepared()) give_framework_cache(table, ordinal);
  const DriverSpan span;
  if (!span.begun()) return evicted;
  const UsedDevice device(table, ordinal);
  if (!device.current()) return evicted;
  give_pages(ordinal, gift_of(holding_of(ordinal), guarantee_bytes));
  const size_t after = free_bytes(table);
  return after > before.free_bytes ? after - before.free_bytes : 0;
}

void serve(Ledger& ledger, uint32_t (*captures)(), uint64_t guarantee_bytes) {
  Publisher publisher(ledger, guarantee_bytes);
  for (;;) {
    Ledger::Need need;
    const bool asked = ledger.wait_for_need(&need, kTick);
    const driver::Table* table = driver::process_table(nullptr);
    if (table != nullptr) stay_out_of_captures(*table);
    const bool may_call_driver = table != nullptr && captures() == 0;
    if (asked) ledger.answer(need, may_call_driver ? give(*table, need, guarantee_bytes) : 0);
    publisher.publish(may_call_driver);
  }
}

// The program's signals are for its own threads.
bool start_thread(Ledger& ledger, uint32_t (*captures)(), uint64_t guarantee_bytes, std::string* why_not) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([&ledger, captures, guarantee_bytes] { serve(ledger, captures, guarantee_bytes); }).detach();
  } catch (const std::system_error& error) {
    *why_not = std::string("no thread for the ledger: ") + error.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

bool PeerService::start(uint32_t (*captures)(), std::string* why_not) {
  static std::mutex mutex;
  std::lock_guard guard(mutex);
  if (joined.load() != nullptr) return true;
  const std::string name = ledger_name();
  if (captures == nullptr || name.empty()) {
    *why_not = "SPILLWAY_LEDGER is off";
    return false;
  }
  Environment environment;
  if (!read_environment(&environment, why_not)) return false;
  std::unique_ptr<Ledger> ledger = Ledger::join(name, why_not);
  if (ledger == nullptr || !start_thread(*ledger, captures, environment.guarantee_bytes, why_not))
    return false;
  joined.store(ledger.release());  // for ever: the thread uses it
  return true;
}

Ledger* PeerService::ledger() {
  return joined.load();
}

}  // namespace spillway
