#include "tools/spillway/history/findings/near_holes.h"

#include <algorithm>
#include <functional>
#include <map>

namespace spillway::tools {
namespace {

constexpr size_t kMostHoles = 3;

// A block, or the free bytes between two.
struct Part {
  uint64_t address = 0, bytes = 0;
  const HeldBlock* block = nullptr;  // null: free
  uint64_t held() const { return block == nullptr ? 0 : bytes; }
};
using Range = std::vector<Part>;  // touching, by address

uint64_t end_of(uint64_t address, uint64_t bytes) {
  return address + std::min(bytes, UINT64_MAX - address);
}

// The memory of one owner, in ranges within which blocks can be joined.
class Ranges {
 public:
  Ranges(const DeviceHistory& device, const Moment& moment)
      : joins_(std::ranges::any_of(device.segments, &HistorySegment::expandable)), moment_(moment) {}

  std::vector<Range> of(const PoolAndStream& owner) {
    for (const OwnedPiece& piece : moment_.pieces)
      if (piece.owner == owner) add(piece);
    close();
    return std::move(ranges_);
  }

 private:
  // Segments that touch are still two, but for the parts of an expandable one.
  void add(const OwnedPiece& piece) {
    if (!joins_ || piece.address != at_) close();
    if (range_.empty()) at_ = piece.address;
    const uint64_t end = end_of(piece.address, piece.bytes);
    auto block = std::ranges::lower_bound(moment_.blocks, at_, {}, &HeldBlock::address);
    for (; block != moment_.blocks.end() && block->address < end; ++block) {
      leave_free(block->address);
      range_.push_back({block->address, block->size, &*block});
      at_ = end_of(block->address, block->size);
    }
    leave_free(end);
  }
  void leave_free(uint64_t until) {
    if (until <= at_) return;
    range_.push_back({at_, until - at_, nullptr});
    at_ = until;
  }
  void close() {
    if (!range_.empty()) ranges_.push_back(std::move(range_));
    range_.clear();
  }

  const bool joins_;
  const Moment& moment_;
  Range range_;
  uint64_t at_ = 0;
  std::vector<Range> ranges_;
};

struct Window {
  size_t begin = 0, end = 0;  // parts of the range; none: nothing in it is long enough
  uint64_t held = 0;
};

// Of all runs of parts that are long enough, the one with the fewest bytes held.
Window best_window(const Range& range, uint64_t request) {
  Window best;
  uint64_t bytes = 0, held = 0;
  size_t end = 0;
  for (size_t begin = 0; begin < range.size(); ++begin) {
    for (; end < range.size() && bytes < request; ++end) bytes += range[end].bytes, held += range[end].held();
    if (bytes < request) break;
    if (best.end == 0 || held < best.held) best = {begin, end, held};
    bytes -= range[begin].bytes, held -= range[begin].held();
  }
  return best;
}

std::vector<PoolPlace> places_of(std::map<StackName, PoolPlace> by_name) {
  std::vector<PoolPlace> places;
  for (auto& [name, place] : by_name) {
    place.place = name;
    places.push_back(std::move(place));
  }
  std::ranges::stable_sort(places, std::ranges::greater(), &PoolPlace::bytes);
  return places;
}

NearHole hole_of(const Range& range, Window window, StackNames* names) {
  while (window.begin > 0 && range[window.begin - 1].block == nullptr) --window.begin;
  while (window.end < range.size() && range[window.end].block == nullptr) ++window.end;
  NearHole hole;
  hole.address = range[window.begin].address;
  std::map<StackName, PoolPlace> by_name;
  for (size_t i = window.begin; i < window.end; ++i) {
    const Part& part = range[i];
    hole.bytes += part.bytes;
    if (part.block == nullptr) {
      hole.free_bytes += part.bytes;
      continue;
    }
    hole.in_the_way += part.bytes;
    ++hole.blocks;
    PoolPlace& place = by_name[names->of(part.block->stack)];
    place.bytes += part.bytes;
    ++place.blocks;
  }
  hole.places = places_of(std::move(by_name));
  return hole;
}

}  // namespace

std::vector<NearHole> near_holes(const DeviceHistory& device, const Moment& moment,
                                 const PoolAndStream& asker, uint64_t request, StackNames* names) {
  const std::vector<Range> ranges = Ranges(device, moment).of(asker);
  std::vector<std::pair<const Range*, Window>> found;
  for (const Range& range : ranges)
    if (const Window window = best_window(range, request); window.end > 0) found.emplace_back(&range, window);
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.second.held; });
  std::vector<NearHole> holes;
  for (size_t i = 0; i < std::min(kMostHoles, found.size()); ++i)
    holes.push_back(hole_of(*found[i].first, found[i].second, names));
  return holes;
}

}  // namespace spillway::tools
