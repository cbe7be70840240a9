#include "tools/spillway/report/text/near_holes_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/pools_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kPlacesOfAHole = 3;

}  // namespace

std::string near_holes_text(const std::vector<NearHole>& holes) {
  if (holes.empty()) return "";
  using enum Align;
  Table table({kRight, kRight, kRight, kRight, kLeft});
  table.add({"piece", "free of it", "in the way", "blocks", "allocated by"});
  for (const NearHole& hole : holes) {
    table.add({size_text(hole.bytes), size_text(hole.free_bytes), size_text(hole.in_the_way),
               std::to_string(hole.blocks), hole.places.empty() ? "" : place_text(hole.places.front())});
    for (size_t i = 1; i < std::min(kPlacesOfAHole, hole.places.size()); ++i)
      table.add({"", "", "", "", place_text(hole.places[i])});
  }
  return "\nClosest to a piece that is large enough\n" + table.text("  ");
}

nlohmann::ordered_json near_holes_json(const std::vector<NearHole>& holes) {
  auto list = nlohmann::ordered_json::array();
  for (const NearHole& hole : holes)
    list.push_back({{"address", hole.address},
                    {"piece_bytes", hole.bytes},
                    {"free_bytes", hole.free_bytes},
                    {"in_the_way_bytes", hole.in_the_way},
                    {"blocks", hole.blocks},
                    {"places", places_json(hole.places)}});
  return list;
}

}  // namespace spillway::tools
