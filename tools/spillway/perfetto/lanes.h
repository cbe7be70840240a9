// Puts spans of time on as few rows as it can, so that none overlaps another one on its row.
//
// Thread-safety: one thread. Ownership: plain values. Units: any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace spillway::tools {

class Lanes {
 public:
  explicit Lanes(size_t most) : most_(most) {}

  // The first row that is free in [from, until); nothing: each of the most rows is taken there.
  std::optional<size_t> place(uint64_t from, uint64_t until) {
    for (size_t row = 0; row < rows_.size(); ++row)
      if (is_free(rows_[row], from, until)) return take(row, from, until);
    if (rows_.size() == most_) return std::nullopt;
    rows_.emplace_back();
    return take(rows_.size() - 1, from, until);
  }

 private:
  using Row = std::map<uint64_t, uint64_t>;  // from → until

  static bool is_free(const Row& row, uint64_t from, uint64_t until) {
    const auto after = row.lower_bound(from);
    if (after != row.end() && (after->first < until || after->first == from)) return false;
    return after == row.begin() || std::prev(after)->second <= from;
  }
  size_t take(size_t row, uint64_t from, uint64_t until) {
    rows_[row][from] = until;
    return row;
  }

  const size_t most_;
  std::vector<Row> rows_;
};

}  // namespace spillway::tools
