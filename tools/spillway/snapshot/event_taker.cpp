#include "tools/spillway/snapshot/event_taker.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace spillway::tools {
namespace {

using Id = Pickle::Id;

constexpr size_t kMostShared = 64;  // a snapshot has a dozen keys and nine actions
constexpr uint64_t kMostReserved = uint64_t{1} << 24;
constexpr uint32_t kMostEvents = uint32_t{1} << 31;

Action action_of(std::string_view name) {
  static const std::map<std::string_view, Action> kActions = {
      {"alloc", Action::kAllocate},
      {"free_requested", Action::kFreeRequested},
      {"free_completed", Action::kFreeCompleted},
      {"segment_alloc", Action::kSegmentAllocate},
      {"segment_map", Action::kSegmentAllocate},
      {"segment_free", Action::kSegmentFree},
      {"segment_unmap", Action::kSegmentFree},
      {"oom", Action::kOutOfMemory},
  };
  const auto found = kActions.find(name);
  return found == kActions.end() ? Action::kOther : found->second;
}

// What `make` gives of an id; asked once for an id that the file shares.
template <typename Value, typename Make>
Value shared(std::vector<std::pair<Id, Value>>* known, Id id, Id first, const Make& make) {
  for (const auto& [one, value] : *known)
    if (one == id) return value;
  const Value value = make();
  if (id < first && known->size() < kMostShared) known->emplace_back(id, value);
  return value;
}

}  // namespace

EventTaker::Key EventTaker::key_of(const Pickle& pickle, Id id, Id first) {
  return shared(&keys_, id, first, [&] {
    static const std::map<std::string_view, Key> kKeys = {
        {"action", Key::kAction}, {"addr", Key::kAddress},  {"device_free", Key::kDeviceFree},
        {"size", Key::kSize},     {"stream", Key::kStream}, {"time_us", Key::kTime},
        {"pool_id", Key::kPool},  {"frames", Key::kFrames},
    };
    const auto found = kKeys.find(pickle.text(id).value_or(""));
    return found == kKeys.end() ? Key::kOther : found->second;
  });
}

std::optional<uint32_t> EventTaker::take(const Pickle& pickle, std::span<const Id> items, Id first) {
  std::optional<Id> action, frames, address, device_free;
  HistoryEvent event;
  const auto whole = [&](Id id) { return static_cast<uint64_t>(pickle.integer(id).value_or(0)); };
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Id value = items[i + 1];
    switch (key_of(pickle, items[i], first)) {
      case Key::kAction:
        action = value;
        break;
      case Key::kAddress:
        address = value;
        break;
      case Key::kDeviceFree:
        device_free = value;
        break;
      case Key::kSize:
        event.size = whole(value);
        break;
      case Key::kStream:
        event.stream = whole(value);
        break;
      case Key::kTime:
        event.microseconds = whole(value);
        break;
      case Key::kPool:
        event.pool = pool_of(pickle, value);
        break;
      case Key::kFrames:
        frames = value;
        break;
      case Key::kOther:
        break;
    }
  }
  if (!action || events_.size() >= kMostEvents) return std::nullopt;
  event.action =
      shared(&actions_, *action, first, [&] { return action_of(pickle.text(*action).value_or("")); });
  const std::optional<Id> place = event.action == Action::kOutOfMemory ? device_free : address;
  if (place) event.address = whole(*place);
  event.stack = stacks_.of(pickle, frames, first);
  // Growing by copies would take half as much memory again. What is only reserved takes none.
  if (events_.empty()) events_.reserve(std::min(pickle.dictionaries(), kMostReserved));
  events_.push_back(event);
  return static_cast<uint32_t>(events_.size() - 1);
}

PoolId pool_of(const Pickle& pickle, Id value) {
  const std::vector<Id>& parts = pickle.items(value);
  if (parts.size() != 2) return {};
  const auto part = [&](size_t i) { return static_cast<uint32_t>(pickle.integer(parts[i]).value_or(0)); };
  return {part(0), part(1)};
}

}  // namespace spillway::tools
