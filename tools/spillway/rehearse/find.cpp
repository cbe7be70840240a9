#include "tools/spillway/rehearse/find.h"

#include <algorithm>
#include <charconv>

#include "spillway/allocator/verdict.h"

namespace spillway::tools {
namespace {

bool parse_number(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

}  // namespace

std::optional<Search> parse_search(const std::string& text, std::string* error) {
  const size_t equals = text.find('='), dots = text.find("..");
  Search search;
  const bool parsed =
      equals != std::string::npos && dots != std::string::npos && dots > equals &&
      is_name(search.name = text.substr(0, equals)) &&
      parse_number(std::string_view(text).substr(equals + 1, dots - equals - 1), &search.low) &&
      parse_number(std::string_view(text).substr(dots + 2), &search.high);
  if (!parsed) {
    *error = "--find is '" + text + "': write a name and a range of integers, such as batch=1..64";
    return std::nullopt;
  }
  if (search.low > search.high) {
    *error = "--find is '" + text + "': " + std::to_string(search.low) + " is more than " +
             std::to_string(search.high);
    return std::nullopt;
  }
  return search;
}

std::optional<Words> substitute(const Words& words, const std::string& name, int64_t value) {
  const std::string mark = "{" + name + "}", number = std::to_string(value);
  Words out = words;
  bool any = false;
  for (std::string& word : out) {
    for (size_t at = word.find(mark); at != std::string::npos; at = word.find(mark, at + number.size())) {
      word.replace(at, mark.size(), number);
      any = true;
    }
  }
  return any ? std::optional(out) : std::nullopt;
}

Found find_largest(const Search& search, const std::function<std::optional<Tried>(int64_t)>& run) {
  Found found;
  // True: it fits. A run that shows nothing of memory ends the search.
  const auto fits = [&](int64_t value) {
    const auto tried = run(value);
    found.stopped = !tried || !is_verdict(tried->run.fit);
    if (tried) found.tried.push_back(*tried);
    return tried && tried->run.fit == Fit::kFits;
  };
  if (!fits(search.low) || found.stopped) return found;
  if (search.high == search.low || fits(search.high)) {
    found.largest = search.high;
    return found;
  }
  int64_t good = search.low, bad = search.high;
  while (!found.stopped && static_cast<uint64_t>(bad) - static_cast<uint64_t>(good) > 1) {
    const int64_t middle =
        good + static_cast<int64_t>((static_cast<uint64_t>(bad) - static_cast<uint64_t>(good)) / 2);
    (fits(middle) ? good : bad) = middle;
  }
  if (!found.stopped) found.largest = good;
  return found;
}

std::string contradiction(const std::vector<Tried>& tried) {
  std::vector<Tried> sorted = tried;
  std::sort(sorted.begin(), sorted.end(), [](const Tried& a, const Tried& b) { return a.value < b.value; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const Tried &below = sorted[i - 1], &above = sorted[i];
    const std::string pair = std::to_string(above.value) + " and " + std::to_string(below.value);
    if (below.run.fit != Fit::kFits && above.run.fit == Fit::kFits)
      return pair + ": the larger one fits and the smaller one does not";
    if (below.run.fit == Fit::kFits && above.run.fit == Fit::kFits &&
        above.run.need.peak < below.run.need.peak)
      return pair + ": the larger one needs less (" + size_text(above.run.need.peak) + " and " +
             size_text(below.run.need.peak) + ")";
  }
  return "";
}

}  // namespace spillway::tools
