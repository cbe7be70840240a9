#include "tools/spillway/run/preload.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "tools/spillway/library_folders.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLibrary = "libspillway_preload.so";

// As execvp finds it; "" where it does not.
std::string file_of(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* held = std::getenv("PATH");
  std::string_view folders = held == nullptr ? "/bin:/usr/bin" : held;
  while (true) {
    const size_t colon = folders.find(':');
    const std::string_view folder = folders.substr(0, colon);
    std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + command;
    if (::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path)) return path;
    if (colon == std::string_view::npos) return "";
    folders.remove_prefix(colon + 1);
  }
}

bool changes_rights(const struct stat& status, const std::string& file) {
  const bool user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
  const bool group = (status.st_mode & S_ISGID) != 0 && status.st_gid != ::getegid();
  return user || group ||
         (::geteuid() != 0 && ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0);
}

}  // namespace

bool find_preload_library(std::string* path, std::string* error) {
  std::string looked;
  for (const fs::path& folder : library_folders()) {
    std::error_code ignored;
    *path = (folder / kLibrary).string();
    if (fs::exists(*path, ignored)) {
      if (path->find_first_of(" :;") == std::string::npos) return true;
      *error = "the path '" + *path +
               "' has a space, a colon or a semicolon: LD_PRELOAD cannot name it. Move it, or set "
               "SPILLWAY_LIB_DIR to a link to its folder.";
      return false;
    }
    looked += " '" + folder.string() + "'";
  }
  *error = std::string(kLibrary) + " is not in" + looked +
           ". Build the project, or set SPILLWAY_LIB_DIR to its folder.";
  return false;
}

bool can_be_preloaded(const std::string& command, std::string* error) {
  const std::string file = file_of(command);
  struct stat status{};
  if (file.empty() || ::stat(file.c_str(), &status) != 0 || !changes_rights(status, file)) return true;
  *error =
      "'" + file +
      "' runs with other rights than yours (setuid, setgid or capabilities): the system lets no library be "
      "preloaded into it. Run what it starts under 'spillway run' instead.";
  return false;
}

}  // namespace spillway::tools
