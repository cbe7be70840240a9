// The folder in which ranks meet, and what dead processes left in it.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "simulator/libraries/nccl/communicator/shared_file.h"

namespace spillway::nccl {
namespace {

// In computing mode the bytes of collectives pass through the folder.
constexpr uint64_t kRoomToCompute = uint64_t{1} << 30;

bool has_room(const char* folder, uint64_t bytes) {
  struct statvfs system{};
  return statvfs(folder, &system) == 0 && system.f_bavail * system.f_frsize >= bytes &&
         access(folder, W_OK) == 0;
}

std::string parent_folder(bool computes) {
  if (const char* chosen = std::getenv("SPILLWAY_SIM_NCCL_FOLDER"); chosen && *chosen) return chosen;
  if (has_room("/dev/shm", computes ? kRoomToCompute : 0)) return "/dev/shm";
  const char* temporary = std::getenv("TMPDIR");
  return temporary && *temporary ? temporary : "/tmp";
}

// A draft of a process that was killed between making and linking it ends in its process id.
bool abandoned(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  FileHeader* header = nullptr;
  void* memory = mmap(nullptr, sizeof(FileHeader), PROT_READ, MAP_SHARED, descriptor, 0);
  struct stat status{};
  const bool whole =
      fstat(descriptor, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(FileHeader));
  close(descriptor);
  if (memory == MAP_FAILED) return false;
  header = static_cast<FileHeader*>(memory);
  const bool gone = whole && header->creator.id != 0 && !is_alive(header->creator);
  munmap(memory, sizeof(FileHeader));
  return gone;
}

}  // namespace

std::string own_folder(bool computes, std::string* why) {
  std::string path = parent_folder(computes) + "/spillway-nccl-" + std::to_string(getuid());
  struct stat status{};
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return *why = "cannot make the folder " + path + ": " + std::strerror(errno) +
                  ": set SPILLWAY_SIM_NCCL_FOLDER to another one",
           "";
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid() ||
      (status.st_mode & 077) != 0)
    return *why = path + " is not a folder of this user alone: remove it, or set SPILLWAY_SIM_NCCL_FOLDER",
           "";
  return path;
}

void sweep(const std::string& folder) {
  DIR* entries = opendir(folder.c_str());
  if (!entries) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string path = folder + "/" + entry->d_name;
    if (std::strncmp(entry->d_name, "nccl-", 5) == 0 && abandoned(path)) unlink(path.c_str());
  }
  closedir(entries);
}

}  // namespace spillway::nccl
