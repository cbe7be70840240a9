#include "strategies/processes/container.h"

#include <algorithm>
#include <cctype>

namespace spillway {

std::string container_in(std::string_view text) {
  constexpr size_t kWhole = 64, kShown = 12;
  for (const std::string_view before :
       {"docker/", "docker-", "containers/", "libpod-", "crio-", "containerd-"}) {
    for (size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
      const std::string_view id = text.substr(at + before.size(), kWhole);
      const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
      if (id.size() == kWhole && std::ranges::all_of(id, is_hex)) return std::string(id.substr(0, kShown));
    }
  }
  return "";
}

}  // namespace spillway
