#include "tools/spillway/diff/difference.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/moment.h"

namespace spillway::tools {
namespace {

using Name = std::pair<std::string, std::string>;  // where, caller
using Places = std::map<Name, PlaceChange>;

// "model.py:47 forward" → "model.py forward", and 47.
std::pair<std::string, uint64_t> without_line(const std::string& place) {
  const size_t space = place.rfind(' '), colon = place.rfind(':', space);
  uint64_t line = 0;
  if (space == std::string::npos || colon == std::string::npos) return {place, 0};
  const char *begin = place.data() + colon + 1, *end = place.data() + space;
  const auto [rest, error] = std::from_chars(begin, end, line);
  if (error != std::errc() || rest != end) return {place, 0};
  return {place.substr(0, colon) + place.substr(space), line};
}

uint64_t distance(const PlaceChange& place) {
  return place.after > place.before ? place.after - place.before : place.before - place.after;
}

// Places of one function that are on one side alone, by line.
struct Moved {
  std::map<std::pair<uint64_t, uint64_t>, Name> before, after;
};

// What only one side has may be a line that moved: where a function has as many of these on either side, they
// belong together in the order of their lines.
void join_moved(Places* places) {
  std::map<Name, Moved> functions;
  for (const auto& [name, place] : *places) {
    if (place.blocks_before != 0 && place.blocks_after != 0) continue;
    const auto where = without_line(name.first), caller = without_line(name.second);
    Moved& moved = functions[{where.first, caller.first}];
    (place.blocks_before != 0 ? moved.before : moved.after)[{where.second, caller.second}] = name;
  }
  for (const auto& [function, moved] : functions) {
    if (moved.before.size() != moved.after.size()) continue;
    for (auto was = moved.before.begin(), is = moved.after.begin(); was != moved.before.end(); ++was, ++is) {
      const PlaceChange gone = places->extract(was->second).mapped();
      PlaceChange& stays = places->at(is->second);
      stays.before = gone.before;
      stays.blocks_before = gone.blocks_before;
    }
  }
}

// The allocator's own count is of the end alone.
SideTotals totals_of(const MomentSide& side) {
  const DeviceHistory& device = side.history->devices.at(side.device);
  SideTotals totals{.device = side.device,
                    .reserved = moment_at(device, side.event).reserved,
                    .older = device.unknown_bytes,
                    .incomplete = side.history->incomplete};
  if (side.event == device.events.size())
    totals.reserved = std::max(totals.reserved, device.held_bytes.value_or(0));
  return totals;
}

// What is older than the file's events and was in use at its end was there all the time.
std::vector<Holder> holders_of(const MomentSide& side) {
  std::vector<Holder> holders = holders_before(*side.history, side.device, side.event);
  const uint64_t older = side.history->devices.at(side.device).unknown_bytes;
  if (older > 0) {
    Holder& one = holders.emplace_back();
    one.where = "older than what the file tells of";
    one.bytes = older;
  }
  return holders;
}

}  // namespace

Difference difference_of(const MomentSide& before, const MomentSide& after) {
  Difference difference;
  Places places;
  const auto add = [&](const MomentSide& side, uint64_t PlaceChange::* bytes,
                       uint64_t PlaceChange::* blocks) {
    SideTotals totals = totals_of(side);
    for (const Holder& holder : holders_of(side)) {
      PlaceChange& place = places[{holder.where, holder.caller}];
      place.where = holder.where;
      place.caller = holder.caller;
      place.*bytes += holder.bytes;
      place.*blocks += holder.blocks;
      totals.in_use += holder.bytes;
    }
    totals.reserved = std::max(totals.reserved, totals.in_use);
    return totals;
  };
  difference.before = add(before, &PlaceChange::before, &PlaceChange::blocks_before);
  difference.after = add(after, &PlaceChange::after, &PlaceChange::blocks_after);
  join_moved(&places);
  for (auto& [name, place] : places) {
    if (place.before == place.after && place.blocks_before == place.blocks_after)
      ++difference.unchanged;
    else
      difference.places.push_back(std::move(place));
  }
  std::ranges::stable_sort(difference.places, std::ranges::greater(), distance);
  return difference;
}

}  // namespace spillway::tools
