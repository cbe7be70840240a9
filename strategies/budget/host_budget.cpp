#include "strategies/budget/host_budget.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace spillway {
namespace {

// The number in a file of one line; `none` for "max" and where there is no file.
uint64_t number_in(const std::string& path, uint64_t none) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : none;
}

uint64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (uint64_t kib = 0; file >> name >> kib; std::getline(file, unit))
    if (name == "MemAvailable:") return kib << 10;
  return 0;
}

// What every group from the process's own upward leaves.
uint64_t left_by_groups(const std::string& root, std::string group, const char* limit, const char* usage) {
  uint64_t left = UINT64_MAX;
  for (;;) {
    const std::string folder = root + group + "/";
    const uint64_t most = number_in(folder + limit, UINT64_MAX), used = number_in(folder + usage, 0);
    if (most != UINT64_MAX) left = std::min(left, most > used ? most - used : 0);
    if (group.empty()) return left;
    group.erase(group.rfind('/'));
  }
}

uint64_t left_by_control_group() {
  std::ifstream file("/proc/self/cgroup");
  uint64_t left = UINT64_MAX;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group == "/" || group.empty() || group.front() != '/') group.clear();
    if (controllers.empty())
      left = std::min(left, left_by_groups("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    if (controllers.find("memory") != std::string::npos)
      left = std::min(left, left_by_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                           "memory.usage_in_bytes"));
  }
  return left;
}

}  // namespace

uint64_t default_host_budget_bytes(unsigned share) {
  return std::min(available_on_machine(), left_by_control_group()) / 2 / std::max(share, 1u);
}

}  // namespace spillway
