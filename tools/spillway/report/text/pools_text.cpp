#include "tools/spillway/report/text/pools_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kPoolsShown = 8, kPlacesShown = 2, kSmallPart = 8;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string place_text(const PoolPlace& place) {
  return place.place.where + (place.place.caller.empty() ? "" : "  from " + place.place.caller);
}

std::string pools_text(const std::vector<PoolHolding>& pools) {
  if (pools.empty()) return "";
  using enum Align;
  Table table({kRight, kRight, kLeft, kLeft, kLeft});
  table.add({"held", "in use", "pool", "stream", "allocated by"});
  for (size_t i = 0; i < std::min(kPoolsShown, pools.size()); ++i) {
    const PoolHolding& pool = pools[i];
    table.add({size_text(pool.held), size_text(pool.in_use), pool_text(pool.pool), address_text(pool.stream),
               pool.places.empty() ? "not known" : place_text(pool.places.front())});
    for (size_t place = 1; place < std::min(kPlacesShown, pool.places.size()); ++place)
      if (pool.places[place].bytes >= pool.places.front().bytes / kSmallPart)
        table.add({"", "", "", "", place_text(pool.places[place])});
  }
  std::string text = "\nWhat this request may not use\n" + table.text("  ");
  if (pools.size() > kPoolsShown)
    text += "  and " + std::to_string(pools.size() - kPoolsShown) + " more (--json has all)\n";
  return text;
}

Json places_json(const std::vector<PoolPlace>& places) {
  Json list = Json::array();
  for (const PoolPlace& place : places)
    list.push_back({{"where", place.place.where},
                    {"caller", text_or_null(place.place.caller)},
                    {"bytes", place.bytes},
                    {"blocks", place.blocks}});
  return list;
}

Json pools_json(const std::vector<PoolHolding>& pools) {
  Json list = Json::array();
  for (const PoolHolding& pool : pools) {
    list.push_back({{"pool", pool_text(pool.pool)},
                    {"stream", pool.stream},
                    {"held_bytes", pool.held},
                    {"in_use_bytes", pool.in_use},
                    {"places", places_json(pool.places)}});
  }
  return list;
}

}  // namespace spillway::tools
