#include "tools/spillway/suggest.h"

#include <algorithm>

#include "simulator/cards/edit_distance.h"

namespace spillway::tools {

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return cards::edit_distance(word, a) < cards::edit_distance(word, b);
  });
  if (nearest == names.end() || cards::edit_distance(word, *nearest) > 1 + word.size() / 3) return "";
  return " Did you mean '" + *nearest + "'?";
}

}  // namespace spillway::tools
