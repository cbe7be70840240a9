// How earlier runs of a program went, so that a run can say whether it is closer to the edge than the last
// one.
//
// A file of one JSON object a line, $XDG_STATE_HOME/spillway/runs.jsonl or
// ~/.local/state/spillway/runs.jsonl; SPILLWAY_RUNS names another, and `off` none. A program is known by a
// hash of its folder and its words, which may hold secrets. Thread-safety: several processes may add at once;
// a line that another one cuts off or removes is lost. Errors: none; what cannot be read or written is as if
// no run had been. Units: bytes, seconds since 1970.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/spillway/command.h"

namespace spillway::tools {

struct RunRecord {
  int64_t when = 0;
  uint64_t failures = 0, rescued = 0;
  // The most that was wanted at once of a device, and what it could give; 0: not known.
  uint64_t wanted_bytes = 0, limit_bytes = 0;
};

class EarlierRuns {
 public:
  explicit EarlierRuns(const Words& command);

  std::optional<RunRecord> last() const;
  void add(const RunRecord& run) const;

 private:
  std::string path_;     // "": none
  std::string program_;  // the hash
};

}  // namespace spillway::tools
