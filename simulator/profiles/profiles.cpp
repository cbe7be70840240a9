#include "simulator/profiles/profiles.h"

#include <algorithm>

#include "simulator/cards/edit_distance.h"

namespace spillway::profiles {
namespace {

constexpr Profile kProfiles[] = {
#define SPILLWAY_PROFILE(name, text) {name, text},
#include "profiles.inc"
#undef SPILLWAY_PROFILE
};

}  // namespace

std::string_view Profile::purpose() const {
  std::string_view line = text.substr(0, text.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of("# "), line.size()));
  return line;
}

std::span<const Profile> all() {
  return kProfiles;
}

const Profile* find(std::string_view name) {
  const auto* found = std::ranges::find(kProfiles, name, &Profile::name);
  return found == std::end(kProfiles) ? nullptr : found;
}

std::string unknown_profile(std::string_view name) {
  const auto* nearest = std::ranges::min_element(
      kProfiles, {}, [&](const Profile& profile) { return cards::edit_distance(profile.name, name); });
  std::string text = "'" + std::string(name) + "' is no profile: did you mean '" +
                     std::string(nearest->name) + "'? There are";
  for (const Profile& profile : kProfiles)
    text += (&profile == kProfiles ? " " : ", ") + std::string(profile.name);
  return text;
}

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  for (;;) {
    const size_t comma = list.find(',');
    names.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return names;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace spillway::profiles
