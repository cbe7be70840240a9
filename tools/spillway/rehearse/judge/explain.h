// What would have fitted: further runs of a program that ran out, and what they showed. Whatever was not run
// is called so.
//
// Thread-safety: none. Errors: a run that cannot be started is left out.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

struct Counterfactual {
  std::string what;  // "ample memory", "with --batch 8 in place of 16", ...
  RunOptions options;
  Rehearsal rehearsal;
  bool survives_failures = false;  // requests that fail are served another way, so its end alone counts
};

struct Explanation {
  std::vector<Counterfactual> runs;
  Words remarks;            // of what was not run, a line each
  uint64_t refused_on = 0;  // memory of the card that refused: none as small is one that would have fitted
  std::optional<OwnLimit> fraction;  // of a process that may take no more than that of any card
  bool only_delayed = false;         // a leak, which no card holds for ever
};

// Runs the program again with more memory than any card has, which shows its need. Where that is smaller than
// the card, with the other allocators on the same card; else with what a user can change.
Explanation find_what_fits(const RunOptions& options, const Rehearsal& first);

// Cards of the table by memory alone, of those that can run the program, the smallest first. `rehearsal`: of
// a run that reached its end.
struct CardsByMemory {
  std::vector<std::string> enough;         // for all that it took
  std::vector<std::string> without_cache;  // for what was in use, but not for all of the cache
};
CardsByMemory cards_by_memory(const Rehearsal& rehearsal, const Explanation& explanation);
// The smallest fraction in hundredths that holds it on the card that refused. Nothing where that is too
// small.
std::optional<double> fraction_enough(const Rehearsal& ample, const Explanation& explanation);
// Whether it shows the need: its memory is more than any card has.
bool is_ample(const Counterfactual& run);
std::string listed(const std::vector<std::string>& names);

// Lines for the report; each indented. "" where there were no runs.
std::string explain(const Explanation& explanation);

}  // namespace spillway::tools
