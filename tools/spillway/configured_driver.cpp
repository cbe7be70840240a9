// In a unit of its own: toml++ is most of its compile time.
#include "tools/spillway/configured_driver.h"

#include <stdexcept>
// Some malformed files fail an assertion of toml++'s parser: that is an error of the file, not of the
// program.
[[noreturn]] static void reject_malformed() {
  throw std::invalid_argument("the file is malformed");
}
#define TOML_ASSERT(condition) ((condition) ? void() : reject_malformed())
#include <toml++/toml.h>

namespace spillway::tools {

std::string configured_driver(const std::string& path) {
  try {
    const std::string version = toml::parse_file(path)["driver"]["version"].value_or(std::string());
    return version.empty() ? "" : "driver-" + version;
  } catch (const toml::parse_error&) {
    return "";
  } catch (const std::invalid_argument&) {
    return "";
  }
}

}  // namespace spillway::tools
