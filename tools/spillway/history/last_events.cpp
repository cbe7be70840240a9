#include "tools/spillway/history/last_events.h"

#include <algorithm>

#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kRecent = 8;  // kinds and places between which a line still grows: those of a layer

// A step, or a failure, parts what was before it from what comes.
bool parts(Deed deed) {
  return deed == Deed::kOther || deed == Deed::kFailed;
}

bool has_place(Deed deed) {
  return deed == Deed::kAllocated || deed == Deed::kFailed;
}

// "3.00 MiB each, 36.00 MiB in all", of one "3.00 MiB".
std::string sizes_text(const EventGroup& group) {
  if (group.count == 1) return size_text(group.bytes);
  const std::string one = group.least == group.most ? size_text(group.most) + " each"
                                                    : size_text(group.least) + " to " + size_text(group.most);
  return one + ", " + size_text(group.bytes) + " in all";
}

std::string times_text(const EventGroup& group) {
  return group.count == 1 ? "" : std::to_string(group.count) + " × ";
}

std::string freed_again_text(const EventGroup& group) {
  if (group.freed_again == 0) return "";
  if (group.freed_again == group.count) return ", freed again";
  return ", " + std::to_string(group.freed_again) + " of them freed again";
}

Deed deed_of(Action action) {
  switch (action) {
    case Action::kAllocate:
      return Deed::kAllocated;
    case Action::kFreeRequested:
      return Deed::kFreedLater;
    case Action::kFreeCompleted:
      return Deed::kFreed;
    case Action::kSegmentAllocate:
      return Deed::kTook;
    case Action::kSegmentFree:
      return Deed::kGaveBack;
    case Action::kOutOfMemory:
      return Deed::kFailed;
    case Action::kOther:
      break;
  }
  return Deed::kOther;
}

// The two halves of a free are one event, where nothing came between them.
bool is_event(const std::vector<HistoryEvent>& events, size_t i) {
  if (events[i].action == Action::kOther) return false;
  return i + 1 >= events.size() || events[i].action != Action::kFreeRequested ||
         events[i + 1].action != Action::kFreeCompleted || events[i].address != events[i + 1].address;
}

}  // namespace

uint64_t EventFolder::most_events(uint64_t lines) {
  constexpr uint64_t kToALine = 25;
  return lines > UINT64_MAX / kToALine ? UINT64_MAX : lines * kToALine;
}

std::optional<uint64_t> EventFolder::before_the_end(std::optional<uint64_t> microseconds) const {
  if (!microseconds || !end_us_) return std::nullopt;
  return *end_us_ - std::min(*end_us_, *microseconds);
}

// What is freed that a line told of needs no line of its own, and a free that comes in two parts needs one.
bool EventFolder::is_known_end(const Event& event) {
  if (event.deed == Deed::kFreed && pending_.erase(event.address) > 0) return true;
  if (event.deed == Deed::kFreedLater) pending_.insert(event.address);
  const bool frees = event.deed == Deed::kFreed || event.deed == Deed::kFreedLater;
  const auto block = frees ? blocks_.find(event.address) : blocks_.end();
  if (block == blocks_.end()) return false;
  ++groups_[block->second].group.freed_again;
  blocks_.erase(block);
  return true;
}

size_t EventFolder::group_of(const Event& event) {
  const auto same = [&](size_t number) {
    const EventGroup& group = groups_[number].group;
    return group.deed == event.deed && group.text == event.text &&
           (!has_place(event.deed) || group.place == event.place);
  };
  if (parts(event.deed)) recent_.resize(std::min<size_t>(recent_.size(), 1));
  const auto known = std::ranges::find_if(recent_, same);
  const size_t number = known == recent_.end() ? groups_.size() : *known;
  if (known != recent_.end()) {
    recent_.erase(known);
  } else {
    EventGroup group;
    group.deed = event.deed;
    group.text = event.text;
    if (has_place(event.deed)) group.place = event.place;
    group.least = UINT64_MAX;
    group.from_us = before_the_end(event.microseconds);
    groups_.push_back({std::move(group)});
  }
  if (parts(event.deed)) recent_.clear();
  recent_.push_front(number);
  if (recent_.size() > kRecent) recent_.pop_back();
  return number;
}

void EventFolder::take(const Event& event) {
  ++taken_;
  if (is_known_end(event)) return;
  const size_t number = group_of(event);
  Open& open = groups_[number];
  EventGroup& group = open.group;
  ++group.count;
  group.bytes += event.bytes;
  group.least = std::min(group.least, event.bytes);
  group.most = std::max(group.most, event.bytes);
  group.until_us = before_the_end(event.microseconds);
  open.last = taken_;
  if (event.deed == Deed::kAllocated) blocks_.insert_or_assign(event.address, number);
}

LastEvents EventFolder::finish(uint64_t earlier) {
  LastEvents last;
  last.earlier = earlier;
  std::ranges::stable_sort(groups_, {}, &Open::last);
  const size_t hidden = groups_.size() - std::min<uint64_t>(lines_, groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i < hidden)
      last.earlier += groups_[i].group.count + groups_[i].group.freed_again;
    else
      last.groups.push_back(std::move(groups_[i].group));
  }
  return last;
}

LastEvents last_events(const MemoryHistory& history, int device, size_t until, uint64_t lines) {
  const std::vector<HistoryEvent>& events = history.devices.at(device).events;
  until = std::min(until, events.size());
  const bool has_clock = !events.empty() && events.back().microseconds > 0;
  std::optional<uint64_t> end;
  if (has_clock) end = events[std::min(until, events.size() - 1)].microseconds;
  size_t first = until;
  for (uint64_t left = EventFolder::most_events(lines); first > 0 && left > 0; --first)
    left -= is_event(events, first - 1) ? 1 : 0;
  const auto count = [&](size_t from, size_t to) {
    uint64_t number = 0;
    for (size_t i = from; i < to; ++i) number += is_event(events, i) ? 1 : 0;
    return number;
  };
  EventFolder folder(lines, end);
  StackNames names(history);
  for (size_t i = first; i < until; ++i) {
    const HistoryEvent& event = events[i];
    if (!is_event(events, i)) continue;
    folder.take({deed_of(event.action), event.address, event.size,
                 has_clock ? std::optional(event.microseconds) : std::nullopt, names.of(event.stack), ""});
  }
  LastEvents last = folder.finish(count(0, first));
  last.of_failure = until < events.size() && events[until].action == Action::kOutOfMemory;
  last.later = count(until + (last.of_failure ? 1 : 0), events.size());
  return last;
}

const char* deed_name(Deed deed) {
  static constexpr const char* kNames[] = {"allocated", "freed",  "freed later", "took",
                                           "gave back", "failed", "other"};
  return kNames[static_cast<size_t>(deed)];
}

std::string group_text(const EventGroup& group) {
  switch (group.deed) {
    case Deed::kAllocated:
      return times_text(group) + "allocated " + sizes_text(group) + freed_again_text(group);
    case Deed::kFreed:
      return "freed " + count_text(group.count, "block", "blocks") + ", " + size_text(group.bytes);
    case Deed::kFreedLater:
      return "freed " + count_text(group.count, "block", "blocks") + ", " + size_text(group.bytes) +
             ", which other streams may still use";
    case Deed::kTook:
      return times_text(group) + "took from the driver " + sizes_text(group);
    case Deed::kGaveBack:
      return times_text(group) + "gave back to the driver " + sizes_text(group);
    case Deed::kFailed:
      return times_text(group) + "could not be served at once: " + sizes_text(group);
    case Deed::kOther:
      break;
  }
  return times_text(group) + group.text;
}

}  // namespace spillway::tools
