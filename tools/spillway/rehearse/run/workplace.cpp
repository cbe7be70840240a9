#include "tools/spillway/rehearse/run/workplace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "spillway-rehearse-";
constexpr time_t kSecondsToLock = 60;  // a younger one's owner may be about to lock it

int open_folder(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool abandoned(int folder) {
  struct stat status{};
  return ::fstat(folder, &status) == 0 && status.st_uid == ::getuid() &&
         std::time(nullptr) - status.st_mtime > kSecondsToLock && ::flock(folder, LOCK_EX | LOCK_NB) == 0;
}

void sweep(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, fs::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().rfind(kPrefix, 0) != 0) continue;
    const int folder = open_folder(entry->path().string());
    if (folder < 0) continue;
    std::error_code ignored;
    if (abandoned(folder)) fs::remove_all(entry->path(), ignored);
    ::close(folder);
  }
}

}  // namespace

Workplace::Workplace() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return;
  sweep(parent);
  std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) return;
  path_ = name;
  lock_ = open_folder(path_);
  if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
}

Workplace::~Workplace() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace spillway::tools
