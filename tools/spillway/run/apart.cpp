#include "tools/spillway/run/apart.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <thread>

#include "tools/spillway/rehearse/run/child.h"

namespace spillway::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The terminal's signals are the program's and the parent's; this process lives no longer than its parent.
[[noreturn]] void work_and_end(const std::function<int()>& work, pid_t parent) {
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  for (const int signal : {SIGTTOU, SIGTTIN}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 127;
  try {
    if (::getppid() == parent) code = work();
  } catch (const std::exception&) {
    code = 126;
  }
  ::_exit(code);
}

}  // namespace

ApartEnd run_apart(const std::function<int()>& work, std::chrono::milliseconds most) {
  const pid_t parent = ::getpid();
  const pid_t worker = ::fork();
  if (worker < 0) return {};
  if (worker == 0) work_and_end(work, parent);
  ::setpgid(worker, worker);  // whoever of the two is first
  ApartEnd end;
  const auto deadline = Clock::now() + most;
  for (int status = 0;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const pid_t ended = ::waitpid(worker, &status, WNOHANG);
    if (ended == worker) {
      end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return end;
    }
    if (ended < 0 && errno != EINTR) return end;
    if (stop_signal() != SIGINT && Clock::now() < deadline) continue;
    if (end.in_time) ::kill(-worker, SIGKILL);
    end.in_time = false;
  }
}

}  // namespace spillway::tools
