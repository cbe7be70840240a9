#include "trace/side_table.h"

#include <algorithm>
#include <cstring>

namespace spillway::trace {
namespace {

constexpr uint64_t padded(uint64_t bytes) {
  return (bytes + 7) & ~uint64_t{7};
}

uint32_t entry_check(SideEntry entry, const void* text) {
  entry.check = 0;
  Check check;
  check.add(&entry, sizeof(entry));
  check.add(text, entry.bytes);
  return static_cast<uint32_t>(check.value() ^ (check.value() >> 32));
}

bool known(const SideEntry& entry) {
  if (entry.type == SideType::kName) return entry.number != 0;
  return entry.type == SideType::kSetting && entry.number <= entry.bytes;
}

}  // namespace

uint64_t walk_side_table(const unsigned char* bytes, uint64_t size,
                         const std::function<void(const SideText&)>& visit) {
  uint64_t at = 0;
  while (size - at >= sizeof(SideEntry)) {
    SideEntry entry;
    std::memcpy(&entry, bytes + at, sizeof(entry));
    const unsigned char* text = bytes + at + sizeof(entry);
    const uint64_t room = size - at - sizeof(entry);
    if (padded(entry.bytes) > room || !known(entry) || entry.check != entry_check(entry, text)) break;
    visit({entry.type, entry.number, {reinterpret_cast<const char*>(text), entry.bytes}});
    at += sizeof(entry) + padded(entry.bytes);
  }
  return at;
}

bool SideTable::append(SideType type, uint32_t number, std::string_view text) {
  std::atomic_ref<uint64_t> used(file_->header().side_used);
  const uint64_t at = used.load(std::memory_order_relaxed);
  const uint64_t bytes = sizeof(SideEntry) + padded(text.size());
  if (bytes > file_->shape().side_bytes - at) return false;
  SideEntry entry{static_cast<uint32_t>(text.size()), 0, type, number};
  entry.check = entry_check(entry, text.data());
  unsigned char* place = file_->side() + at;
  std::memcpy(place, &entry, sizeof(entry));
  if (!text.empty()) std::memcpy(place + sizeof(entry), text.data(), text.size());
  used.store(at + bytes, std::memory_order_release);
  return true;
}

void SideTable::adopt(const File& parent) {
  const uint64_t used = std::atomic_ref<uint64_t>(parent.header().side_used).load(std::memory_order_acquire);
  walk_side_table(parent.side(), std::min(used, parent.shape().side_bytes), [this](const SideText& entry) {
    if (!append(entry.type, entry.number, entry.text)) return;
    if (entry.type == SideType::kSetting) {
      settings_[std::string(entry.text.substr(0, entry.number))] = entry.text.substr(entry.number);
    } else {
      names_[std::string(entry.text)] = entry.number;
      last_name_ = std::max(last_name_, entry.number);
    }
  });
}

uint64_t SideTable::intern(std::string_view text) {
  text = text.substr(0, kMaxTextBytes);
  if (const auto found = names_.find(text); found != names_.end()) return found->second;
  const auto place =
      names_.emplace(text, last_name_ + 1).first;  // first: if this throws, the file is untouched
  if (!append(SideType::kName, last_name_ + 1, text)) {
    names_.erase(place);
    return 0;
  }
  return ++last_name_;
}

void SideTable::set(std::string_view key, std::string_view value) {
  key = key.substr(0, kMaxTextBytes);
  value = value.substr(0, kMaxTextBytes);
  const auto [held, is_new] = settings_.try_emplace(std::string(key));
  if (!is_new && held->second == value) return;
  held->second = value;
  append(SideType::kSetting, static_cast<uint32_t>(key.size()), held->first + held->second);
}

}  // namespace spillway::trace
