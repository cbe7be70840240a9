#include "simulator/driver/account.h"

namespace spillway::simulator {

bool Account::take_pages(uint64_t bytes) {
  if (bytes > free_bytes()) {
    refuse(bytes, "");
    return false;
  }
  pages_bytes_ += bytes;
  note_peak();
  return true;
}

void Account::give_pages(uint64_t bytes) {
  pages_bytes_ -= bytes;
}

bool Account::charge(std::string_view label, uint64_t bytes) {
  if (bytes == 0) return true;
  if (bytes > free_bytes()) {
    refuse(bytes, label);
    return false;
  }
  auto part = parts_.find(label);
  if (part == parts_.end()) part = parts_.emplace(label, Part{}).first;
  part->second.bytes += bytes;
  modelled_bytes_ += bytes;
  note_peak();
  return true;
}

bool Account::discharge(std::string_view label, uint64_t bytes) {
  if (bytes == 0) return true;
  const auto part = parts_.find(label);
  if (part == parts_.end() || part->second.bytes < bytes) return false;
  part->second.bytes -= bytes;
  modelled_bytes_ -= bytes;
  return true;
}

void Account::reset() {
  peak_bytes_ = 0;
  note_peak();
  refused_requests_ = 0;
  first_refusal_ = {};
}

void Account::refuse(uint64_t bytes, std::string_view label) {
  if (refused_requests_++ > 0) return;
  first_refusal_ = {.asked_bytes = bytes, .free_bytes = free_bytes(), .label = std::string(label)};
}

void Account::note_peak() {
  if (charged_bytes() < peak_bytes_ || charged_bytes() == 0) return;
  peak_bytes_ = charged_bytes();
  for (auto& [label, part] : parts_) part.at_peak_bytes = part.bytes;
}

}  // namespace spillway::simulator
