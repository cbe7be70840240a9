#include "simulator/driver/machine/visible.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "simulator/cards/cards.h"

namespace spillway::simulator {
namespace {

std::optional<int> place_of_uuid(std::string_view beginning, int count) {
  std::optional<int> found;
  for (int place = 0; place < count; ++place) {
    if (!cards::uuid_text(place).starts_with(beginning)) continue;
    if (found) return std::nullopt;
    found = place;
  }
  return found;
}

std::optional<int> place_of(std::string_view entry, int count) {
  if (entry.starts_with("GPU-")) return place_of_uuid(entry, count);
  int place = 0;
  const char* const behind = entry.data() + entry.size();
  const auto [end, error] = std::from_chars(entry.data(), behind, place);
  if (error != std::errc() || end != behind || place < 0 || place >= count) return std::nullopt;
  return place;
}

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<int> visible_devices(const char* setting, int count) {
  if (!setting) {
    std::vector<int> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<int> visible;
  for (std::string_view rest = setting;;) {
    const size_t comma = rest.find(',');
    const auto place = place_of(without_blanks(rest.substr(0, comma)), count);
    if (!place) return visible;
    if (std::find(visible.begin(), visible.end(), *place) != visible.end()) return {};
    visible.push_back(*place);
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace spillway::simulator
