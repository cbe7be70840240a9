// When each moment of a history was, on an axis on which no two of them come in the wrong order.
//
// Events of the same microsecond are a nanosecond apart. Where the file has no clock, an event is a
// microsecond.
//
// Thread-safety: none while it is made, any afterwards. Errors: times that fall, as those of a damaged file
// may, stand still. Units: nanoseconds.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

class TimeAxis {
 public:
  explicit TimeAxis(const DeviceHistory& device);

  bool has_clock() const { return has_clock_; }
  // `moment`: what had happened are the events before it.
  uint64_t of(size_t moment) const { return times_[moment == 0 ? 0 : moment - 1]; }
  uint64_t end() const { return times_.back(); }

 private:
  std::vector<uint64_t> times_;  // of the events, and one where there is none
  bool has_clock_ = false;
};

}  // namespace spillway::tools
