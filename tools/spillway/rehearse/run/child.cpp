#include "tools/spillway/rehearse/run/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "tools/spillway/rehearse/input.h"
#include "tools/spillway/rehearse/run/orphans.h"

namespace spillway::tools {
namespace {

volatile sig_atomic_t child = 0, stopped = 0;

// The terminal's own signals reach the child without us, those that one process sends another do not.
void on_stop(int signal, siginfo_t* info, void*) {
  stopped = signal;
  if (child > 0 && info->si_code <= 0) ::kill(static_cast<pid_t>(child), signal);
}

constexpr int kStopping[] = {SIGINT, SIGTERM, SIGHUP};

sigset_t stopping_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopping) sigaddset(&set, signal);
  return set;
}

// What is ignored stays ignored, as nohup and a shell's background jobs have it.
void listen_for_stops() {
  static bool listening = false;
  if (std::exchange(listening, true)) return;
  for (const int signal : kStopping) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_sigaction = on_stop;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(signal, &action, nullptr);
  }
}

// No stop comes between the fork and knowing the child.
class StopsHeldBack {
 public:
  StopsHeldBack() {
    const sigset_t set = stopping_set();
    ::sigprocmask(SIG_BLOCK, &set, &before_);
  }
  ~StopsHeldBack() { release(); }
  void release() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// In the child: it ends with its parent, however that ends.
void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(128 + SIGTERM);
}

void default_unless_ignored(int signal) {
  struct sigaction action{};
  if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
}

// How many bytes came before the end.
ssize_t read_retrying(int from, int* to) {
  ssize_t count = 0;
  do count = ::read(from, to, sizeof *to);
  while (count < 0 && errno == EINTR);
  return count;
}

[[noreturn]] void give_up(int failed) {
  const int code = errno;
  static_cast<void>(!::write(failed, &code, sizeof code));
  ::_exit(kNotFound);
}

[[noreturn]] void become(const Words& command, const Environment& environment, int input,
                         const std::string& output, HostAddresses addresses, int failed) {
  apply(environment);
  if (addresses == HostAddresses::kRepeated) repeat_host_addresses();
  if (input >= 0) ::dup2(input, STDIN_FILENO);
  if (!output.empty()) {
    const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) give_up(failed);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  give_up(failed);
}

int wait_for(pid_t pid, const std::function<void()>& tick) {
  int status = 0;
  for (auto pause = std::chrono::milliseconds(5);;
       pause = std::min(pause * 2, std::chrono::milliseconds(250))) {
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended == pid) break;
    if (ended > 0) continue;  // adopted
    if (ended < 0 && errno != EINTR) return kCannotRun;
    if (pause >= std::chrono::milliseconds(250)) tick();
    std::this_thread::sleep_for(pause);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int stop_signal() {
  return stopped;
}

ChildEnd run_child(const Words& command, const Environment& environment, const std::string& output,
                   const std::function<void()>& tick, HostAddresses addresses) {
  ChildEnd end;
  int failed[2];  // closed by exec; carries the errno of one that fails
  listen_for_stops();
  adopt_orphans();
  if (::pipe2(failed, O_CLOEXEC) != 0) return {kCannotRun, errno};
  const int input = input_of_next_run();
  const pid_t parent = ::getpid();
  {
    const StopsHeldBack held;
    if (stopped != 0) {
      ::close(failed[0]);
      ::close(failed[1]);
      if (input >= 0) ::close(input);
      return {.exit_code = 128 + stopped};
    }
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (const int signal : kStopping) default_unless_ignored(signal);
      held.release();
      end_with(parent);
      become(command, environment, input, output, addresses, failed[1]);
    }
    child = pid;
  }
  const int fork_error = errno;
  ::close(failed[1]);
  if (input >= 0) ::close(input);
  if (child < 0) {
    ::close(failed[0]);
    return {kCannotRun, fork_error};
  }
  if (read_retrying(failed[0], &end.start_error) == 0) end.start_error = 0;
  end.exit_code = wait_for(static_cast<pid_t>(child), tick);
  child = 0;
  if (stopped != 0) end_orphans(stopped);
  ::close(failed[0]);
  return end;
}

}  // namespace spillway::tools
