#include "interpose/account/native_account.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

#include "allocator/accounting/process_budget.h"
#include "interpose/core.h"
#include "interpose/plain_lock.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

NativeTable table SPILLWAY_GUARDED_BY(native_table_lock);
uint64_t last_serial SPILLWAY_GUARDED_BY(native_table_lock) = 0;
std::atomic<spillway_budget*> found{nullptr};

void in_child() {
  native_table_lock.free_in_child();
  {
    const Locked lock(native_table_lock);
    table.forget_all();
  }
  if (spillway_budget* budget = found.load()) {
    std::memset(budget->taken_bytes, 0, sizeof budget->taken_bytes);
    std::memset(budget->native_bytes, 0, sizeof budget->native_bytes);
  }
}

}  // namespace

PlainMutex<LockOrder::kNativeTable> native_table_lock;

spillway_budget* native_budget() {
  spillway_budget* budget = found.load(std::memory_order_acquire);
  if (budget != nullptr || mode() == Mode::kObserve) [[likely]]
    return budget;
  const spillway_core_table* core_table = core();
  budget = core_table == nullptr ? nullptr : core_table->budget();
  if (budget == nullptr) {
    static std::atomic<bool> said{false};
    if (core_table != nullptr && !said.exchange(true)) say("no limit is kept: ", core_error());
    return nullptr;
  }
  spillway_budget* nothing = nullptr;
  if (found.compare_exchange_strong(nothing, budget)) pthread_atfork(nullptr, nullptr, in_child);
  return budget;
}

bool is_counting() {
  return found.load(std::memory_order_acquire) != nullptr;
}

bool is_device(int device) {
  return device >= 0 && device < SPILLWAY_MOST_DEVICES;
}

void give_back(int device, uint64_t bytes) {
  spillway_budget* budget = found.load(std::memory_order_relaxed);
  if (budget != nullptr && is_device(device) && bytes != 0)
    budget::give_back(*budget, static_cast<size_t>(device), bytes, budget::By::kDriverCall);
}

HeldTable::HeldTable() {
  native_table_lock.lock();
}

HeldTable::~HeldTable() {
  native_table_lock.unlock();
}

NativeTable* HeldTable::operator->() const {
  return &table;
}

uint64_t HeldTable::newest_serial() const {
  return last_serial;
}

bool HeldTable::add(NativeEntry entry) const {
  entry.serial = ++last_serial;
  const bool added = table.add(entry);
  if (!added) give_back(entry.device, entry.bytes);
  return added;
}

void HeldTable::drop(NativeEntry* entry) const {
  give_back(entry->device, entry->bytes);
  table.remove(entry);
}

}  // namespace spillway::interpose
