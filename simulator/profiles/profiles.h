// How real machines differ from the simulated driver's kindest form: each profile is a TOML text that changes
// what the driver answers, refuses and costs. `simulator/profiles/*.toml` are inside the library.
//
// Thread-safety: constant data. Ownership: static. Errors: an unknown name is a null pointer, and
// `unknown_profile` has the text. Units: none.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::profiles {

struct Profile {
  std::string_view name;  // as the file's, without ".toml"
  std::string_view text;
  std::string_view purpose() const;  // the first line's comment
};

std::span<const Profile> all();
const Profile* find(std::string_view name);
// "'virtual' is no profile: did you mean 'virtual-machine'? There are driver-12.8, ..."
std::string unknown_profile(std::string_view name);
// The names in a list such as "typical,virtual-machine", in its order.
std::vector<std::string_view> names_in(std::string_view list);

}  // namespace spillway::profiles
