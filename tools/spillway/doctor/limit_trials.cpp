#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "processes/ledger.h"
#include "strategies/core/environment.h"
#include "tools/spillway/doctor/trials.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;
constexpr const char* kSharedMemory = "/dev/shm";
constexpr uint64_t kLocked = 64 << 20;
constexpr uint64_t kSharedForLoaders = uint64_t{1} << 30;
constexpr uint64_t kUsualMaps = 65530;

std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word)) return std::nullopt;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

Trial try_locked_memory() {
  const std::string name = "locked memory";
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "no limit" : "a limit of " + size_text(limit.rlim_cur);
  void* at = ::mmap(nullptr, kLocked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool locked = at != MAP_FAILED && ::mlock(at, kLocked) == 0;
  if (at != MAP_FAILED) ::munmap(at, kLocked);
  if (locked) return {name, TrialState::kOk, size_text(kLocked) + " were locked; " + allowed, ""};
  return {name, TrialState::kLimited, size_text(kLocked) + " could not be locked: " + allowed,
          "RDMA and io_uring buffers may fail: ulimit -l unlimited (docker run --ulimit memlock=-1)"};
}

// The folder of this process's group in the one hierarchy, where the kernel has that.
fs::path group_folder() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0)
      return fs::path("/sys/fs/cgroup") / line.substr(std::min<size_t>(4, line.size()));
  return "/sys/fs/cgroup";
}

// The smallest room of the group and those around it.
Trial try_host_memory() {
  const std::string name = "host memory";
  const auto pages = static_cast<uint64_t>(std::max<int64_t>(0, ::sysconf(_SC_PHYS_PAGES)));
  const uint64_t machine = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::optional<uint64_t> room;
  for (fs::path group = group_folder();; group = group.parent_path()) {
    const auto most = number_in(group / "memory.max"), used = number_in(group / "memory.current");
    if (most && used) room = std::min(room.value_or(UINT64_MAX), *most - std::min(*most, *used));
    if (group == "/sys/fs/cgroup" || !group.has_relative_path()) break;
  }
  const fs::path older = "/sys/fs/cgroup/memory";  // the first version's, where a limit is always told
  if (const auto most = number_in(older / "memory.limit_in_bytes"); most && *most < machine)
    room = *most - std::min(*most, number_in(older / "memory.usage_in_bytes").value_or(0));
  if (!room) return {name, TrialState::kOk, size_text(machine) + ", and no limit of a control group", ""};
  return {name, TrialState::kLimited,
          "the control group leaves " + size_text(*room) + " of the machine's " + size_text(machine),
          "what is moved to host memory counts against it: raise memory.max (docker run --memory)"};
}

Trial try_shared_memory() {
  struct statvfs status{};
  if (::statvfs(kSharedMemory, &status) != 0)
    return {kSharedMemory, TrialState::kMissing, "there is none",
            "mount a tmpfs there: the ledger and data loaders need it"};
  const uint64_t size = status.f_blocks * status.f_frsize, free = status.f_bavail * status.f_frsize;
  return judge_shared_memory(free, size);
}

Trial try_mappings() {
  const std::string name = "vm.max_map_count";
  const auto maps = number_in("/proc/sys/vm/max_map_count");
  if (!maps) return {name, TrialState::kLimited, "it cannot be read", "look whether /proc is mounted"};
  if (*maps >= kUsualMaps) return {name, TrialState::kOk, std::to_string(*maps), ""};
  return {name, TrialState::kLimited,
          std::to_string(*maps) + ", less than the usual " + std::to_string(kUsualMaps),
          "a program with many libraries and host pages may need more: sysctl vm.max_map_count=65530"};
}

Trial try_reports() {
  const std::string name = "report files";
  std::error_code unknown;
  const std::string folder = fs::current_path(unknown).string();
  if (::access(".", W_OK) == 0) return {name, TrialState::kOk, "can be written in " + folder, ""};
  return {name, TrialState::kLimited, "cannot be written in " + folder,
          "run elsewhere, or name a place with --trace"};
}

// What the core of a program would refuse at its first shortage.
Trial try_settings() {
  spillway::Environment unused;
  std::string error;
  if (read_environment(&unused, &error))
    return {kSettingsTrial, TrialState::kOk, "the SPILLWAY_ variables of the environment are understood", ""};
  return {kSettingsTrial, TrialState::kMissing, error,
          "correct or unset it: programs start with it as it is"};
}

}  // namespace

Trial judge_shared_memory(uint64_t free, uint64_t size) {
  const std::string found = size_text(free) + " of " + size_text(size) + " free";
  if (free >= kSharedForLoaders) return {kSharedMemory, TrialState::kOk, found, ""};
  if (free < ledger_bytes())
    return {kSharedMemory, TrialState::kLimited, found,
            "the ledger needs " + size_text(ledger_bytes()) +
                ": without it processes ask each other for no memory (docker run --shm-size=8g)"};
  return {kSharedMemory, TrialState::kLimited, found,
          "enough for Spillway; PyTorch's data loaders may need more (docker run --shm-size=8g)"};
}

std::vector<Trial> try_limits() {
  return {try_settings(),      try_host_memory(), try_locked_memory(),
          try_shared_memory(), try_mappings(),    try_reports()};
}

}  // namespace spillway::tools
