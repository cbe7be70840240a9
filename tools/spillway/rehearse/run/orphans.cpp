#include "tools/spillway/rehearse/run/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

namespace spillway::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(5), kMost = std::chrono::seconds(10);

// "PID (NAME) STATE PARENT ...", where the name may hold anything.
pid_t parent_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return 0;
  return static_cast<pid_t>(std::strtol(text.c_str() + name_end + 4, nullptr, 10));
}

std::set<pid_t> children() {
  std::set<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->path().filename().c_str(), nullptr, 10));
    if (pid > 0 && parent_of(entry->path()) == ::getpid()) found.insert(pid);
  }
  return found;
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void end_orphans(int signal) {
  const Clock::time_point start = Clock::now();
  std::set<pid_t> told;
  while (Clock::now() - start < kMost) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::set<pid_t> left = children();
    if (left.empty()) return;
    for (const pid_t pid : left) {
      if (told.insert(pid).second) ::kill(pid, signal);
      if (Clock::now() - start > kGrace) ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace spillway::tools
