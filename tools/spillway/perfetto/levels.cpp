#include "tools/spillway/perfetto/levels.h"

#include <algorithm>

namespace spillway::tools {
namespace {

uint64_t& at(Levels& levels, MemoryLevel level) {
  return levels[static_cast<size_t>(level)];
}

// How each level changes at each moment; sums wrap.
std::vector<Levels> changes_of(const Lives& lives) {
  using enum MemoryLevel;
  std::vector<Levels> changes(lives.moments + 1);
  for (const BlockLife& block : lives.blocks) {
    at(changes[block.from], kInUse) += block.requested;
    at(changes[block.pending], kInUse) -= block.requested;
    at(changes[block.pending], kPending) += block.held;
    at(changes[block.until], kPending) -= block.held;
    at(changes[block.from], kIdle) -= block.held;
    at(changes[block.until], kIdle) += block.held;
  }
  for (const SegmentLife& segment : lives.segments) {
    for (const MemoryLevel level : {kReserved, kIdle}) {
      at(changes[segment.from], level) += segment.size;
      at(changes[segment.until], level) -= segment.size;
    }
  }
  return changes;
}

}  // namespace

std::vector<Levels> levels_of(const Lives& lives) {
  std::vector<Levels> levels = changes_of(lives);
  levels.resize(lives.moments);
  for (size_t i = 1; i < levels.size(); ++i)
    for (size_t level = 0; level < kLevels; ++level) levels[i][level] += levels[i - 1][level];
  for (Levels& moment : levels)
    for (uint64_t& level : moment)
      if (level > INT64_MAX) level = 0;
  return levels;
}

std::vector<size_t> points_of(const std::vector<Levels>& levels, size_t most,
                              const std::vector<size_t>& always) {
  const size_t stretch = levels.size() / most + 1;
  std::vector<size_t> points = {0};
  for (size_t begin = 0; begin < levels.size(); begin += stretch) {
    const auto first = levels.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = levels.begin() + static_cast<ptrdiff_t>(std::min(begin + stretch, levels.size()));
    for (const MemoryLevel level : {MemoryLevel::kInUse, MemoryLevel::kReserved}) {
      const auto highest = std::max_element(first, last, [level](const Levels& a, const Levels& b) {
        return a[static_cast<size_t>(level)] < b[static_cast<size_t>(level)];
      });
      points.push_back(static_cast<size_t>(highest - levels.begin()));
    }
    points.push_back(static_cast<size_t>(last - levels.begin()) - 1);
  }
  points.insert(points.end(), always.begin(), always.end());
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

}  // namespace spillway::tools
