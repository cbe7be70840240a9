#include "tools/spillway/history/steps.h"

#include <algorithm>

#include "tools/spillway/history/moment.h"

namespace spillway::tools {
namespace {

// Of a damaged history the levels may be anything.
uint64_t distance(int64_t low, int64_t high) {
  return static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
}

uint64_t largest_fall(const DeviceHistory& device, size_t until) {
  Level level;
  int64_t top = 0;
  uint64_t largest = 0;
  for (size_t i = 0; i < until; ++i) {
    level.take_in(device.events[i]);
    top = std::max(top, level.bytes());
    largest = std::max(largest, distance(level.bytes(), top));
  }
  return largest;
}

// Where the level has fallen by `least` from its top, and before it falls again has risen by as much.
std::vector<size_t> falls_of(const DeviceHistory& device, size_t until, uint64_t least) {
  std::vector<size_t> falls;
  Level level;
  int64_t top = 0, bottom = 0;
  bool falling = false;
  for (size_t i = 0; i < until; ++i) {
    level.take_in(device.events[i]);
    const int64_t now = level.bytes();
    if (!falling) {
      top = std::max(top, now);
      if (distance(now, top) < least) continue;
      falls.push_back(i + 1);
      falling = true;
      bottom = now;
    } else {
      bottom = std::min(bottom, now);
      if (distance(bottom, now) < least) continue;
      falling = false;
      top = now;
    }
  }
  return falls;
}

}  // namespace

Steps::Steps(const DeviceHistory& device, size_t until) {
  for (const size_t event : device.step_events)
    if (event < until) starts_.push_back(event);
  if (!starts_.empty() || by_optimizers(device, until)) return;
  device.optimizer_steps.empty() ? by_waves(device, until) : by_notes(device, until);
}

size_t Steps::of(size_t event) const {
  return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), event) - starts_.begin());
}

// False where they are long over: what follows, such as an evaluation, is not one long step.
bool Steps::by_optimizers(const DeviceHistory& device, size_t until) {
  constexpr size_t kFewest = 3, kMostPauses = 4;
  std::vector<size_t> starts;
  for (const size_t event : device.optimizer_events)
    if (event < until && (starts.empty() || starts.back() != event)) starts.push_back(event);
  if (starts.size() < kFewest) return false;
  size_t longest = 0;
  for (size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
  if (until - starts.back() > kMostPauses * longest) return false;
  starts_ = std::move(starts);
  return true;
}

void Steps::by_notes(const DeviceHistory& device, size_t until) {
  size_t event = 0;
  for (const uint64_t time : device.optimizer_steps) {
    while (event < until && device.events[event].microseconds < time) ++event;
    if (event < until) starts_.push_back(event);
  }
}

// What a step allocates and frees is one large wave with many small ones on it. Falls are counted that are a
// half of the largest, or where these are few, such as the end of a model's loading, ever smaller ones.
void Steps::by_waves(const DeviceHistory& device, size_t until) {
  constexpr size_t kFew = 5;
  constexpr uint64_t kSmallest = 256;  // part of the largest fall
  are_guessed_ = true;
  const uint64_t largest = largest_fall(device, until);
  for (uint64_t part = 2; part <= kSmallest && starts_.size() < kFew && largest >= part; part *= 2)
    starts_ = falls_of(device, until, largest / part);
  if (!free_what_they_take(device)) starts_.clear();
}

// A program that makes its model, or its gradients, one after the other has small waves too, and each of them
// leaves nearly all that it takes. A step frees most of it. The layers of a forward pass free what they
// only compute with, but what is kept for the backward pass is most of what they rise by.
bool Steps::free_what_they_take(const DeviceHistory& device) const {
  constexpr size_t kFewest = 3;
  if (starts_.size() < kFewest) return true;
  uint64_t taken = 0, freed = 0, risen = 0;
  Level level;
  for (size_t i = 0; i < starts_[1]; ++i) level.take_in(device.events[i]);
  const int64_t before = level.bytes();
  for (size_t wave = 1; wave + 1 < starts_.size(); ++wave) {
    const int64_t bottom = level.bytes();
    int64_t top = bottom;
    for (size_t i = starts_[wave]; i < starts_[wave + 1]; ++i) {
      const HistoryEvent& event = device.events[i];
      level.take_in(event);
      top = std::max(top, level.bytes());
      if (event.action == Action::kAllocate) taken += event.size;
      if (event.action == Action::kFreeCompleted) freed += event.size;
    }
    risen += distance(bottom, top);
  }
  const uint64_t left = distance(std::min(before, level.bytes()), level.bytes());
  return freed >= taken / 2 && left <= risen / 2;
}

}  // namespace spillway::tools
