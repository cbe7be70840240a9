#include "tools/spillway/library_folders.h"

#include <cstdio>
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

bool is_built_for_some_libtorch(const fs::path& folder, const std::string& stem) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    unsigned major = 0, minor = 0;
    int length = 0;
    if (name == stem + ".so") return true;
    if (name.starts_with(stem + "_") &&
        std::sscanf(name.c_str() + stem.size(), "_%3u_%3u.so%n", &major, &minor, &length) == 2 &&
        length > 0 && name.size() == stem.size() + static_cast<size_t>(length))
      return true;
  }
  return false;
}

std::string put_in_front(const char* name, const std::string& value) {
  const char* held = std::getenv(name);
  return held != nullptr && *held != '\0' ? value + ":" + held : value;
}

}  // namespace spillway::tools
