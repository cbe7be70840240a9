#include "tools/spillway/library_folders.h"

#include <cstdlib>
#include <system_error>

namespace spillway::tools {

namespace fs = std::filesystem;

std::vector<fs::path> library_folders() {
  std::error_code error;
  if (const char* folder = std::getenv("SPILLWAY_LIB_DIR"); folder != nullptr && *folder != '\0')
    return {fs::absolute(folder, error)};
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path root = self.parent_path().parent_path();
  return {root / "lib", root / "lib/spillway"};
}

std::string put_in_front(const char* name, const std::string& value) {
  const char* held = std::getenv(name);
  return held != nullptr && *held != '\0' ? value + ":" + held : value;
}

}  // namespace spillway::tools
