#include "strategies/budget/budget.h"

#include <atomic>
#include <string>
#include <type_traits>

#include "allocator/pages/libraries_share.h"
#include "base/mutex.h"
#include "strategies/core/environment.h"
#include "strategies/core/process.h"

namespace spillway {
namespace {

constinit spillway_budget budget{};
constinit std::atomic<uint64_t> configured_reserve{0};
constinit Mutex<LockOrder::kBudgetSettings>
    reading;  // used until the process's last instruction: nothing to destroy
bool is_read SPILLWAY_GUARDED_BY(reading) = false;
static_assert(std::is_trivially_destructible_v<decltype(reading)>);

void set_reserve(uint64_t bytes) {
  __atomic_store_n(&budget.reserve_bytes, bytes, __ATOMIC_RELAXED);
}

}  // namespace

spillway_budget* process_budget() {
  const Locked guard(reading);
  if (is_read) return &budget;
  Environment environment;
  std::string wrong;
  if (!read_environment(&environment, &wrong)) {
    refuse(SPILLWAY_INVALID, wrong);
    return nullptr;
  }
  budget.limit_bytes = environment.limit_bytes == 0 ? UINT64_MAX : environment.limit_bytes;
  budget.reserve_bytes = environment.reserve_bytes;
  configured_reserve = environment.reserve_bytes;
  is_read = true;
  return &budget;
}

void open_reserve() {
  set_reserve(0);
  if (Allocator* allocator = Process::get().allocator()) leave_to_libraries(*allocator, 0);
}

void close_reserve() {
  set_reserve(configured_reserve);
  if (Allocator* allocator = Process::get().allocator())
    leave_to_libraries(*allocator, Process::get().left_to_libraries());
}

}  // namespace spillway
