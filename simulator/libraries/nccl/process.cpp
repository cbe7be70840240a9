#include "simulator/libraries/nccl/process.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace spillway::nccl {
namespace {

// The 22nd field of /proc/ID/stat; 0 for a process that is gone or a zombie. The name, the second field, is
// in parentheses and may hold anything.
uint64_t start_of(int32_t id) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", id);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  char line[1024];
  if (!file || !std::fgets(line, sizeof line, file.get())) return 0;
  const char* rest = std::strrchr(line, ')');
  char state = 0;
  unsigned long long start = 0;
  if (!rest || std::sscanf(rest + 1,
                           " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                           &state, &start) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : start;
}

}  // namespace

Process this_process() {
  const auto id = static_cast<int32_t>(getpid());
  return {id, start_of(id)};
}

bool alive(const Process& process) {
  const uint64_t start = start_of(process.id);
  return start != 0 && start == process.start;
}

}  // namespace spillway::nccl
