// The largest integer with which a program fits, by bisection.
//
// Thread-safety: pure functions but for `find_largest`, which runs programs. Errors: text.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/outcome.h"

namespace spillway::tools {

struct Search {
  std::string name;
  int64_t low = 0, high = 0;
};

// "batch=1..64". Nothing and `error` for any other text.
std::optional<Search> parse_search(const std::string& text, std::string* error);

// `words` with every "{name}" replaced. Nothing where there is none.
std::optional<Words> substitute(const Words& words, const std::string& name, int64_t value);

// A run as a row of a table.
struct RunSummary {
  Fit fit = Fit::kProgramFailed;
  Need need;
  int exit_code = 0;
  std::string condition;  // of "fits": "if ...", or ""
  std::string why;        // of anything else, in one line
};

struct Tried {
  int64_t value = 0;
  RunSummary run;
};

struct Found {
  std::optional<int64_t> largest;  // nothing: not even the smallest fits, or a run failed
  std::vector<Tried> tried;        // in the order of the runs
  bool stopped = false;            // the last run says nothing of memory
};

// Bisects with `run`, which gives nothing when the program can not be started. That what fits at a value fits
// below it is taken for granted between the values that were tried, and only there.
Found find_largest(const Search& search, const std::function<std::optional<Tried>(int64_t)>& run);

// Among the tried: a value that fits above one that does not, or one that needs less than a smaller one; ""
// if there is none.
std::string contradiction(const std::vector<Tried>& tried);

}  // namespace spillway::tools
