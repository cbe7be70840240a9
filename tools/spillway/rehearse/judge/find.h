// The largest integer with which a program fits, in few runs.
//
// Thread-safety: pure functions but for `find_largest`, which runs programs. Errors: text.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/report/rows.h"

namespace spillway::tools {

struct Search {
  std::string name;
  int64_t low = 0, high = 0;  // both are tried values; `high` is the last multiple within the range
  int64_t step = 1;
  uint64_t last() const;  // the number of `high`; that of `low` is 0
  int64_t value(uint64_t number) const;
};

// "batch=1..64", or "batch=8..64:8": 8, 16, 24 and so on. Nothing and `error` for any other text.
std::optional<Search> parse_search(const std::string& text, std::string* error);

// `words` with every "{name}" replaced. Nothing where there is none.
std::optional<Words> substitute(const Words& words, const std::string& name, int64_t value);

struct Tried {
  int64_t value = 0;
  RunSummary run;
};

struct Found {
  std::optional<int64_t> largest;  // nothing: not even the smallest fits, or a run failed
  std::vector<Tried> tried;        // in the order of the runs
  bool stopped = false;            // the last run says nothing of memory
};

// Asks `run`, which gives nothing when the program cannot be started. The next value is where the line
// through the peaks of the largest two that fit meets the card's capacity; where that does not halve what is
// left, it is the middle. That what fits at a value fits below it is taken for granted between the values
// that were tried, and only there.
Found find_largest(const Search& search, const std::function<std::optional<Tried>(int64_t)>& run);

// Among the tried: a value that fits above one that does not, or one that needs clearly less than a smaller
// one; "" if there is none.
std::string contradiction(const std::vector<Tried>& tried);

}  // namespace spillway::tools
