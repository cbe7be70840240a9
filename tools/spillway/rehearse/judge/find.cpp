#include "tools/spillway/rehearse/judge/find.h"

#include <algorithm>
#include <charconv>

#include "allocator/request/verdict.h"

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

// An allocator that takes memory by segments takes a little more or less by chance.
bool is_clearly_less(uint64_t peak, uint64_t other) {
  constexpr uint64_t kPercent = 100;
  return peak < other - other / kPercent;
}

// What is known of the boundary, by the numbers of the values: 0 is the lowest.
class Bracket {
 public:
  explicit Bracket(uint64_t last) : last_(last), bad_(last + 1) {}
  bool closed() const { return good_ ? *good_ + 1 == bad_ : bad_ == 0; }
  std::optional<uint64_t> good() const { return good_; }

  // The lowest, then one not far above it, whose peak shows how fast the need grows; then by the line through
  // the peaks, and the middle where two such steps did not halve what is left. Only while it is not closed.
  uint64_t next() {
    constexpr uint64_t kPart = 8;
    constexpr int kPatience = 2;
    if (!good_) return 0;
    const uint64_t end = bad_ - 1;
    const uint64_t width = end - *good_;
    if (steps_++ == 0) return *good_ + std::max<uint64_t>(width / kPart, 1);
    if (width <= width_ / 2 || guesses_ == 0) {
      guesses_ = 0;
      width_ = width;
    }
    const auto guess = crossing(*good_);
    if (guess && guesses_++ < kPatience) return std::clamp(*guess, *good_ + 1, end);
    guesses_ = 0;
    return *good_ + (width + 1) / 2;
  }

  void saw(uint64_t number, const RunSummary& run) {
    if (run.fit != Fit::kFits) {
      bad_ = number;
      return;
    }
    if (good_ && run.need.peak > peak_) slope_ = double(run.need.peak - peak_) / double(number - *good_);
    good_ = number;
    peak_ = run.need.peak;
    room_ = run.need.capacity - std::min(run.need.capacity, peak_);
  }

 private:
  // Where the need would reach the capacity.
  std::optional<uint64_t> crossing(uint64_t good) const {
    if (slope_ <= 0) return std::nullopt;
    const double ahead = double(room_) / slope_;
    return ahead < double(last_ - good) ? good + uint64_t(ahead) : last_;
  }

  const uint64_t last_;
  std::optional<uint64_t> good_;  // the largest that fits
  uint64_t bad_;                  // the smallest that does not, at first the one after the last
  uint64_t peak_ = 0, room_ = 0;  // of the good one
  double slope_ = 0;              // bytes for one number more
  int steps_ = 0;
  int guesses_ = 0;     // by the line, in a row
  uint64_t width_ = 0;  // before them
};

}  // namespace

std::optional<Search> parse_search(const std::string& text, std::string* error) {
  const std::string_view all = text;
  const size_t equals = all.find('='), dots = all.find(".."), colon = all.find(':');
  Search search;
  const bool parsed =
      equals != std::string::npos && dots != std::string::npos && dots > equals &&
      is_name(search.name = text.substr(0, equals)) &&
      parse_number(all.substr(equals + 1, dots - equals - 1), &search.low) &&
      parse_number(all.substr(dots + 2, colon == std::string::npos ? colon : colon - dots - 2),
                   &search.high) &&
      (colon == std::string::npos || (parse_number(all.substr(colon + 1), &search.step) && search.step > 0));
  if (!parsed) {
    *error =
        "--find is '" + text +
        "': write a name and a range of integers, such as batch=1..64, or batch=8..64:8 for multiples of 8";
    return std::nullopt;
  }
  if (search.low > search.high) {
    *error = "--find is '" + text + "': " + std::to_string(search.low) + " is more than " +
             std::to_string(search.high);
    return std::nullopt;
  }
  search.high = search.value(search.last());
  return search;
}

uint64_t Search::last() const {
  return (uint64_t(high) - uint64_t(low)) / uint64_t(step);
}

int64_t Search::value(uint64_t number) const {
  return int64_t(uint64_t(low) + number * uint64_t(step));
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
  Bracket bracket(search.last());
  while (!found.stopped && !bracket.closed()) {
    const uint64_t next = bracket.next();
    const auto tried = run(search.value(next));
    found.stopped = !tried || !is_verdict(tried->run.fit);
    if (!tried) break;
    found.tried.push_back(*tried);
    bracket.saw(next, tried->run);
  }
  if (const auto good = bracket.good(); good && !found.stopped) found.largest = search.value(*good);
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
        is_clearly_less(above.run.need.peak, below.run.need.peak))
      return pair + ": the larger one needs less (" + size_text(above.run.need.peak) + " and " +
             size_text(below.run.need.peak) + ")";
  }
  return "";
}

}  // namespace spillway::tools
