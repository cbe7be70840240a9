// What would have fitted: further runs of a program that ran out, and what they showed. Nothing is said that
// was not run.
//
// Thread-safety: none. Errors: a run that can not be started is left out.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/rehearse/outcome.h"
#include "tools/spillway/rehearse/run.h"

namespace spillway::tools {

struct Counterfactual {
  std::string what;  // "ample memory", "expandable segments", ...
  RunOptions options;
  Rehearsal rehearsal;
};

// Runs the program again with more memory than any card has; then, where its need turns out smaller than the
// card, with the other allocators on the same card.
std::vector<Counterfactual> run_counterfactuals(const RunOptions& options, const Rehearsal& first);

// Lines for the report; each indented.
std::string explain(const Rehearsal& first, const std::vector<Counterfactual>& others);

}  // namespace spillway::tools
