// Takes the events of a snapshot's history out of its pickle while that is read: as dictionaries, ten million
// of them would not fit in memory.
//
// Thread-safety: one thread. Ownership: the stacks are the caller's. Errors: a key of another type is as if
// it were not there.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tools/spillway/history/history.h"
#include "tools/spillway/snapshot/pickle/pickle.h"
#include "tools/spillway/snapshot/stacks.h"

namespace spillway::tools {

class EventTaker {
 public:
  explicit EventTaker(Stacks* stacks) : stacks_(*stacks) {}

  // The event's number, where `items` are one's: an "action" is among the keys.
  std::optional<uint32_t> take(const Pickle& pickle, std::span<const Pickle::Id> items, Pickle::Id first);

  // By number, in the file's order.
  std::vector<HistoryEvent>& events() { return events_; }

 private:
  enum class Key : uint8_t { kAction, kAddress, kDeviceFree, kSize, kStream, kTime, kPool, kFrames, kOther };

  Key key_of(const Pickle& pickle, Pickle::Id id, Pickle::Id first);

  Stacks& stacks_;
  std::vector<std::pair<Pickle::Id, Key>> keys_;  // that the file shares
  std::vector<std::pair<Pickle::Id, Action>> actions_;
  std::vector<HistoryEvent> events_;
};

// (0, 0) where `value` is no pair of numbers.
PoolId pool_of(const Pickle& pickle, Pickle::Id value);

}  // namespace spillway::tools
