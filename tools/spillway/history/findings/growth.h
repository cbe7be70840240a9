// What is in use and is replaced by something larger, again and again: the keys and values of a generation
// that are copied into a new tensor with each token. No block of it is old, and yet it never gets smaller.
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <map>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/history/names.h"

namespace spillway::tools {

struct ReplacedGrowth {
  uint64_t bytes = 0;  // that it has risen by: in the later part of a history, or of one that is cut, in all
  Growth growth;
};

// Of the places that hold memory at `now`. `is_sample`: the places of most blocks are those of other blocks
// of their size.
std::map<StackName, ReplacedGrowth> what_is_replaced(const DeviceHistory& device, const Moment& now,
                                                     bool is_sample, StackNames* names);

}  // namespace spillway::tools
