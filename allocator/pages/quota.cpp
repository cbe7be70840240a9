// What the heap may hold: by the device's limit, by the process's budget, and by what the card has beyond the
// reserve.
#include <algorithm>

#include "allocator/accounting/budget.h"
#include "allocator/heap.h"

namespace spillway {

uint64_t DeviceHeap::room_in_limit() const {
  const uint64_t beside = held_bytes_ + allocator_.guest_bytes(device_->id());
  const uint64_t own = limit_bytes_ > beside ? limit_bytes_ - beside : 0;
  const spillway_budget* budget = allocator_.budget_;
  if (budget == nullptr) return own;
  const uint64_t drawn = budget::room(*budget, device_index_, budget::read(budget->reserve_bytes));
  return std::min(own, drawn);
}

uint64_t DeviceHeap::room() const {
  return std::min(room_in_limit(), beside_reserve_);
}

// Whatever the card has, the process may not take what the request lacks.
bool DeviceHeap::is_over_limit(const Miss& miss, uint64_t short_bytes) {
  const Locked guard(lock_);
  return !miss.refused && room_in_limit() < short_bytes;
}

bool DeviceHeap::draw(uint64_t bytes) {
  if (bytes == 0) return true;
  if (bytes > room()) return false;
  spillway_budget* budget = allocator_.budget_;
  // Another thread's call of the driver may have drawn meanwhile.
  if (budget != nullptr && !budget::draw(*budget, device_index_, bytes, budget::read(budget->reserve_bytes),
                                         budget::By::kAllocator))
    return false;
  held_bytes_ += bytes;
  if (beside_reserve_ != UINT64_MAX) beside_reserve_ -= bytes;
  return true;
}

void DeviceHeap::put_back(uint64_t bytes) {
  held_bytes_ -= bytes;
  if (beside_reserve_ != UINT64_MAX) beside_reserve_ += bytes;
  if (spillway_budget* budget = allocator_.budget_)
    budget::give_back(*budget, device_index_, bytes, budget::By::kAllocator);
}

uint64_t DeviceHeap::native_bytes() const {
  const spillway_budget* budget = allocator_.budget_;
  return budget == nullptr ? 0 : budget::read(budget->native_bytes[device_index_]);
}

// What was there then is among the bytes that were in use already.
uint64_t DeviceHeap::native_since_start() const {
  const uint64_t now = native_bytes();
  return now > native_at_start_ ? now - native_at_start_ : 0;
}

// The driver is asked only where something is reserved, and not under the lock.
void DeviceHeap::look_beside_reserve() {
  const spillway_budget* budget = allocator_.budget_;
  if (budget == nullptr) return;
  const uint64_t reserve = budget::read(budget->reserve_bytes);
  const uint64_t free = reserve == 0 ? UINT64_MAX : device_->free_bytes(UINT64_MAX);
  const Locked guard(lock_);
  beside_reserve_ = free == UINT64_MAX ? UINT64_MAX : free - std::min(free, reserve);
}

}  // namespace spillway
