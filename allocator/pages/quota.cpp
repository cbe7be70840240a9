#include "allocator/pages/quota.h"

#include <algorithm>

#include "allocator/accounting/process_budget.h"

namespace spillway {

Quota::Quota(size_t device, spillway_budget* const& budget, const std::atomic<uint64_t>& guests)
    : device_(device), budget_(budget), guests_(guests), native_at_start_(native()) {}

uint64_t Quota::reserve() const {
  return budget_ == nullptr ? 0 : budget::read(budget_->reserve_bytes);
}

uint64_t Quota::room_below_limit() const {
  const uint64_t taken = held_ + guests_.load();
  return limit_ > taken ? limit_ - taken : 0;
}

uint64_t Quota::room_beside(uint64_t reserve) const {
  const uint64_t own = room_below_limit();
  return budget_ == nullptr ? own : std::min(own, budget::room(*budget_, device_, reserve));
}

uint64_t Quota::room_with_reserve() const {
  return room_beside(0);
}

uint64_t Quota::room_in_limit() const {
  return room_beside(reserve());
}

uint64_t Quota::room() const {
  return std::min(room_in_limit(), beside_reserve_);
}

bool Quota::draw(uint64_t bytes) {
  if (bytes == 0) return true;
  if (bytes > room()) return false;
  // Another thread's call of the driver may have drawn meanwhile.
  if (budget_ != nullptr && !budget::draw(*budget_, device_, bytes, reserve(), budget::By::kAllocator))
    return false;
  held_ += bytes;
  if (beside_reserve_ != UINT64_MAX) beside_reserve_ -= bytes;
  return true;
}

void Quota::give_back(uint64_t bytes) {
  held_ -= bytes;
  if (beside_reserve_ != UINT64_MAX) beside_reserve_ += bytes;
  if (budget_ != nullptr) budget::give_back(*budget_, device_, bytes, budget::By::kAllocator);
}

// It may come from the card, which is asked anew before what is left of it is taken.
bool Quota::draw_for_source(uint64_t bytes) {
  if (bytes > room_below_limit()) return false;
  held_ += bytes;
  of_sources_ += bytes;
  if (beside_reserve_ != UINT64_MAX) beside_reserve_ -= std::min(beside_reserve_, bytes);
  return true;
}

void Quota::give_back_of_source(uint64_t bytes) {
  held_ -= bytes;
  of_sources_ -= bytes;
}

void Quota::see_free(uint64_t free_bytes, uint64_t left_bytes) {
  const uint64_t left = std::max(reserve(), left_bytes);
  const bool bounds = left != 0 && free_bytes != UINT64_MAX;
  beside_reserve_ = bounds ? free_bytes - std::min(free_bytes, left) : UINT64_MAX;
}

uint64_t Quota::native() const {
  return budget_ == nullptr ? 0 : budget::read(budget_->native_bytes[device_]);
}

// What was there at the start is among the bytes that were in use already.
uint64_t Quota::native_since_start() const {
  const uint64_t now = native(), known = native_at_start_ + of_sources_;
  return now > known ? now - known : 0;
}

}  // namespace spillway
