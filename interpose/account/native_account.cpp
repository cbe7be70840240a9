#include "interpose/account/native_account.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

#include "allocator/accounting/budget.h"
#include "interpose/core.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
NativeTable table;  // these two are guarded by `lock`
uint64_t last_serial = 0;
std::atomic<spillway_budget*> found{nullptr};

void in_child() {
  pthread_mutex_init(&lock, nullptr);
  table.forget_all();
  if (spillway_budget* budget = found.load()) {
    std::memset(budget->taken_bytes, 0, sizeof budget->taken_bytes);
    std::memset(budget->native_bytes, 0, sizeof budget->native_bytes);
  }
}

}  // namespace

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
  pthread_mutex_lock(&lock);
}

HeldTable::~HeldTable() {
  pthread_mutex_unlock(&lock);
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
