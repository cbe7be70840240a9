#include "tools/spillway/look.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kCells = 40;

// As many cells as the whole bar has: what is left after whole ones goes to the largest parts.
std::vector<size_t> cells_of(const std::vector<BarPart>& parts, double whole) {
  std::vector<size_t> cells;
  for (const BarPart& part : parts) {
    const auto exact = static_cast<double>(part.bytes) / whole * static_cast<double>(kCells);
    cells.push_back(part.bytes == 0 ? 0 : std::max<size_t>(1, static_cast<size_t>(exact)));
  }
  const auto largest = static_cast<size_t>(
      std::ranges::max_element(parts, {}, [](const BarPart& part) { return part.bytes; }) - parts.begin());
  const size_t others = std::accumulate(cells.begin(), cells.end(), size_t{0}) - cells[largest];
  cells[largest] = kCells - std::min(others, kCells - 1);
  return cells;
}

}  // namespace

const char* mark_text(Mark mark) {
  static constexpr const char* kMarks[] = {"█", "░", "▒", "·"};
  return kMarks[static_cast<size_t>(mark)];
}

std::string memory_bar(const std::vector<BarPart>& parts) {
  double whole = 0;
  for (const BarPart& part : parts) whole += static_cast<double>(part.bytes);
  if (whole == 0) return "";
  const std::vector<size_t> cells = cells_of(parts, whole);
  std::string bar, names;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t cell = 0; cell < cells[i]; ++cell) bar += mark_text(parts[i].mark);
    if (parts[i].bytes > 0)
      names += std::string(names.empty() ? "" : ", ") + mark_text(parts[i].mark) + " " + parts[i].name + " " +
               size_text(parts[i].bytes);
  }
  return bar + "  " + names;
}

std::string share_text(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  const long share = std::lround(100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return share == 0 && part > 0 ? "<1%" : std::to_string(share) + "%";
}

}  // namespace spillway::tools
