// A difference as text and as JSON.
#include <nlohmann/json.hpp>

#include "tools/spillway/diff/difference.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShown = 20;

std::string signed_size(uint64_t before, uint64_t after) {
  if (before == after) return "0 B";
  return after > before ? "+" + size_text(after - before) : "-" + size_text(before - after);
}

// A program's usual device is not worth a word.
std::string device_text(const Difference& difference, const SideTotals& side) {
  const bool usual = difference.before.device == 0 && difference.after.device == 0;
  return usual ? "" : ", device " + std::to_string(side.device);
}

Json json_of(const SideTotals& side, const std::string& what) {
  return {{"what", what},
          {"device", side.device},
          {"in_use_bytes", side.in_use},
          {"reserved_bytes", side.reserved},
          {"older_bytes", side.older},
          {"incomplete", side.incomplete}};
}

}  // namespace

std::string difference_text(const Difference& difference, const std::string& before,
                            const std::string& after) {
  using enum Align;
  Table sides({kLeft, kRight, kRight, kLeft});
  sides.add({"", "in use", "reserved", ""});
  const SideTotals &a = difference.before, &b = difference.after;
  sides.add({"A", size_text(a.in_use), size_text(a.reserved), before + device_text(difference, a)});
  sides.add({"B", size_text(b.in_use), size_text(b.reserved), after + device_text(difference, b)});
  sides.add({"B - A", signed_size(a.in_use, b.in_use), signed_size(a.reserved, b.reserved), ""});
  std::string text = sides.text("") + "\n";
  if (!a.incomplete.empty()) text += "NOT WHOLE: A: " + a.incomplete + "\n";
  if (!b.incomplete.empty()) text += "NOT WHOLE: B: " + b.incomplete + "\n";
  Table places({kRight, kRight, kRight, kRight, kLeft});
  places.add({"change", "A", "B", "blocks", "place"});
  const size_t shown = std::min(kShown, difference.places.size());
  for (size_t i = 0; i < shown; ++i) {
    const PlaceChange& place = difference.places[i];
    places.add({signed_size(place.before, place.after), size_text(place.before), size_text(place.after),
                std::to_string(place.blocks_before) + " to " + std::to_string(place.blocks_after),
                place.where + (place.caller.empty() ? "" : "  from " + place.caller)});
  }
  text += difference.places.empty() ? "No place holds more or less.\n" : places.text("  ");
  if (difference.places.size() > shown)
    text += "  and " + count_text(difference.places.size() - shown, "place", "places") +
            " more (--json has all)\n";
  if (difference.unchanged > 0)
    text += "  unchanged: " + count_text(difference.unchanged, "place", "places") + "\n";
  return text;
}

std::string difference_json(const Difference& difference, const std::string& before,
                            const std::string& after) {
  Json places = Json::array();
  for (const PlaceChange& place : difference.places)
    places.push_back({{"where", place.where},
                      {"caller", place.caller},
                      {"change_bytes", place.change()},
                      {"before_bytes", place.before},
                      {"after_bytes", place.after},
                      {"before_blocks", place.blocks_before},
                      {"after_blocks", place.blocks_after}});
  const Json json = {{"spillway_diff", 1},
                     {"before", json_of(difference.before, before)},
                     {"after", json_of(difference.after, after)},
                     {"places", places},
                     {"unchanged_places", difference.unchanged}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::tools
