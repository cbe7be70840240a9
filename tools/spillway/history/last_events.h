// The last events before a failure, folded into what they mean: "12 × allocated at model.py:7 forward", and
// not a line for each block. Events of one kind at one place are one line, also where a few others lie
// between them, as in a loop over layers.
//
// Thread-safety: plain values, pure functions. Ownership: texts are their own. Units: bytes, microseconds.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/spillway/history/history.h"
#include "tools/spillway/history/names.h"

namespace spillway::tools {

enum class Deed : uint8_t {
  kAllocated,
  kFreed,
  kFreedLater,  // other streams may still use it
  kTook,        // memory of the driver
  kGaveBack,    // to the driver
  kFailed,      // a request that could not be served at once
  kOther        // a step, a phase, a strategy: `text` says what
};

struct EventGroup {
  Deed deed = Deed::kOther;
  uint64_t count = 0;
  uint64_t bytes = 0, least = 0, most = 0;  // in all, and of one
  uint64_t freed_again = 0;                 // of what was allocated, how many before the failure
  StackName place;   // of allocations and of earlier failures; "" where it is not known
  std::string text;  // of kOther
  std::optional<uint64_t> from_us, until_us;  // how long before the failure; nothing: the file has no clock
};

struct LastEvents {
  bool of_failure = false;         // without a failure they are those at the end
  std::vector<EventGroup> groups;  // the one that ended last stands last
  uint64_t earlier = 0, later = 0;
};

// Folds events, given one after the other.
class EventFolder {
 public:
  // `lines`: the most groups. `end_us`: when the request failed.
  EventFolder(uint64_t lines, std::optional<uint64_t> end_us) : lines_(lines), end_us_(end_us) {}

  struct Event {
    Deed deed = Deed::kOther;
    uint64_t address = 0, bytes = 0;
    std::optional<uint64_t> microseconds;
    StackName place;
    std::string text;
  };
  void take(const Event& event);
  // `earlier`: events that were not given.
  LastEvents finish(uint64_t earlier);

  // So many events at most are worth folding into so many lines.
  static uint64_t most_events(uint64_t lines);

 private:
  struct Open {
    EventGroup group;
    uint64_t last = 0;  // the number of its last event
  };
  bool is_known_end(const Event& event);
  size_t group_of(const Event& event);
  std::optional<uint64_t> before_the_end(std::optional<uint64_t> microseconds) const;

  const uint64_t lines_;
  const std::optional<uint64_t> end_us_;
  std::vector<Open> groups_;
  std::deque<size_t> recent_;                    // groups that may still grow, the one used last in front
  std::unordered_map<uint64_t, size_t> blocks_;  // address → the group that allocated it
  std::unordered_set<uint64_t> pending_;         // addresses that were freed, but not yet given back
  uint64_t taken_ = 0;
};

// Of a device of the history, before event `until` (its failure, or the end).
LastEvents last_events(const MemoryHistory& history, int device, size_t until, uint64_t lines);

const char* deed_name(Deed deed);
// "12 × allocated 3.00 MiB each", without the place.
std::string group_text(const EventGroup& group);

}  // namespace spillway::tools
