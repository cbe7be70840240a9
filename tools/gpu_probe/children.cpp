#include "tools/gpu_probe/children.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>

#include "tools/gpu_probe/output.h"

namespace spillway::probe {
namespace {

std::string ending(int status) {
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "exit code " + std::to_string(WEXITSTATUS(status));
  return "done";
}

// A process that the driver holds in the kernel does not end by a signal either: it is left behind then.
std::string wait_for(pid_t child, double deadline_us, double seconds) {
  constexpr double kGraceUs = 5e6;
  bool killed = false;
  for (int status = 0;;) {
    if (waitpid(child, &status, WNOHANG) == child)
      return killed ? "did not end in " + std::to_string(static_cast<int>(seconds)) + " s" : ending(status);
    if (!killed && now_us() > deadline_us) {
      kill(-child, SIGKILL);
      killed = true;
    }
    if (killed && now_us() > deadline_us + kGraceUs)
      return "did not end in " + std::to_string(static_cast<int>(seconds)) + " s, nor when it was killed";
    usleep(2000);
  }
}

void begin_child() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
}

}  // namespace

std::string run_again(const std::string& part, int device, double seconds) {
  const double deadline = now_us() + seconds * 1e6;
  const pid_t child = fork();
  if (child < 0) return "no process could be made";
  if (child == 0) {
    begin_child();
    const std::string ordinal = std::to_string(device);
    execl("/proc/self/exe", "gpu_probe", "--child", part.c_str(), "--device", ordinal.c_str(), nullptr);
    _exit(127);
  }
  setpgid(child, child);
  return wait_for(child, deadline, seconds);
}

std::string run_in_fork(double seconds, const std::function<void()>& work) {
  const double deadline = now_us() + seconds * 1e6;
  const pid_t child = fork();
  if (child < 0) return "no process could be made";
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    std::fflush(nullptr);
    _exit(0);
  }
  // In this process's own group, so that whoever kills this one kills it too.
  for (int status = 0;;) {
    if (waitpid(child, &status, WNOHANG) == child) return ending(status);
    if (now_us() > deadline) {
      kill(child, SIGKILL);
      return "did not end in " + std::to_string(static_cast<int>(seconds)) + " s";
    }
    usleep(1000);
  }
}

}  // namespace spillway::probe
