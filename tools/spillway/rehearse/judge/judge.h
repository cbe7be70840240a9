// What check asks of a rehearsal, and what comes out.
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/baseline.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

struct Rules {
  std::optional<uint64_t> budget;
  std::optional<Baseline> before;
  Tolerance tolerance;
};

// That the program fits, then a card after the other. Of one that does not fit no peak is judged.
std::vector<Finding> judge(const RunOptions& options, const Rules& rules, const Rehearsal& rehearsal);
bool none_failed(const std::vector<Finding>& findings);

}  // namespace spillway::tools
