#include "simulator/driver/memory/account.h"

#include <algorithm>

#include "simulator/driver/process/shared_machine.h"

namespace spillway::simulator {

uint64_t Account::others_bytes() const {
  return machine_ ? machine_->others_bytes(card_) : 0;
}

uint64_t Account::free_bytes() const {
  const uint64_t others = others_bytes();
  if (others >= capacity_bytes_) return 0;
  const uint64_t ours = capacity_bytes_ - others;
  return charged_bytes() < ours ? ours - charged_bytes() : 0;
}

uint64_t Account::free_bytes_now() {
  const SharedMachine::Lock lock(machine_);
  if (machine_) machine_->forget_the_dead();
  return free_bytes();
}

uint64_t Account::machine_peak_bytes() const {
  return machine_ ? machine_->peak_bytes(card_) : peak_bytes_;
}

bool Account::has_room(uint64_t bytes) {
  if (bytes <= free_bytes()) return true;
  if (!machine_) return false;
  machine_->forget_the_dead();
  return bytes <= free_bytes();
}

void Account::note_change() {
  if (machine_) machine_->publish(card_, charged_bytes(), allocator_bytes_);
}

bool Account::take_pages(uint64_t bytes, Taker taker) {
  evict(bytes);
  const SharedMachine::Lock lock(machine_);
  if (!has_room(bytes)) {
    refuse(bytes, "");
    return false;
  }
  pages_bytes_ += bytes;
  if (taker == Taker::kAllocator) allocator_bytes_ += bytes;
  note_change();
  note_peak();
  return true;
}

void Account::give_pages(uint64_t bytes, Taker taker) {
  pages_bytes_ -= bytes;
  if (taker == Taker::kAllocator) allocator_bytes_ -= bytes;
  note_change();
}

void Account::hand_over(uint64_t bytes, Taker from, Taker to) {
  if (from == Taker::kAllocator) allocator_bytes_ -= bytes;
  if (to == Taker::kAllocator) allocator_bytes_ += bytes;
  note_change();
}

bool Account::charge(std::string_view label, uint64_t bytes) {
  if (bytes == 0) return true;
  evict(bytes);
  const SharedMachine::Lock lock(machine_);
  if (!has_room(bytes)) {
    refuse(bytes, label);
    return false;
  }
  auto part = parts_.find(label);
  if (part == parts_.end()) part = parts_.emplace(label, Part{}).first;
  part->second.bytes += bytes;
  modelled_bytes_ += bytes;
  note_change();
  note_peak();
  return true;
}

bool Account::discharge(std::string_view label, uint64_t bytes) {
  if (bytes == 0) return true;
  const auto part = parts_.find(label);
  if (part == parts_.end() || part->second.bytes < bytes) return false;
  part->second.bytes -= bytes;
  modelled_bytes_ -= bytes;
  note_change();
  return true;
}

void Account::reset() {
  peak_bytes_ = outside_peak_bytes_ = 0;
  note_peak();
  refused_requests_ = 0;
  first_refusal_ = {};
  refused_parts_.clear();
}

void Account::refuse(uint64_t bytes, std::string_view label) {
  if (machine_) machine_->refused(card_, bytes);
  if (!label.empty()) ++refused_parts_[std::string(label)];
  if (refused_requests_++ > 0) return;
  first_refusal_ = {.asked_bytes = bytes, .free_bytes = free_bytes(), .label = std::string(label)};
}

void Account::note_peak() {
  outside_peak_bytes_ = std::max(outside_peak_bytes_, charged_bytes() - allocator_bytes_);
  if (charged_bytes() < peak_bytes_ || charged_bytes() == 0) return;
  peak_bytes_ = charged_bytes();
  allocator_at_peak_bytes_ = allocator_bytes_;
  for (auto& [label, part] : parts_) part.at_peak_bytes = part.bytes;
}

}  // namespace spillway::simulator
