// A difference as text and as JSON.
#include <nlohmann/json.hpp>

#include "tools/spillway/diff/difference.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kShown = 20;

std::string signed_size(uint64_t before, uint64_t after) {
  if (before == after) return "0 B";
  return after > before ? "+" + size_text(after - before) : "-" + size_text(before - after);
}

}  // namespace

std::string difference_text(const Difference& difference, const std::string& before,
                            const std::string& after) {
  using enum Align;
  Table sides({kLeft, kRight, kRight, kLeft});
  sides.add({"", "in use", "reserved", ""});
  sides.add({"A", size_text(difference.in_use_before), size_text(difference.reserved_before), before});
  sides.add({"B", size_text(difference.in_use_after), size_text(difference.reserved_after), after});
  sides.add({"B - A", signed_size(difference.in_use_before, difference.in_use_after),
             signed_size(difference.reserved_before, difference.reserved_after), ""});
  std::string text = sides.text("") + "\n";
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
  using Json = nlohmann::ordered_json;
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
                     {"before",
                      {{"what", before},
                       {"in_use_bytes", difference.in_use_before},
                       {"reserved_bytes", difference.reserved_before}}},
                     {"after",
                      {{"what", after},
                       {"in_use_bytes", difference.in_use_after},
                       {"reserved_bytes", difference.reserved_after}}},
                     {"places", places},
                     {"unchanged_places", difference.unchanged}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::tools
