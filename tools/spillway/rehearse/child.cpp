#include "tools/spillway/rehearse/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace spillway::tools {
namespace {

volatile pid_t child = 0;

void pass_on(int signal) {
  if (child > 0) ::kill(child, signal);
}

// While a child runs, what would end us ends it: its end is still reported. The terminal's own signals reach
// it without us.
class Signals {
 public:
  Signals() {
    set(SIGTERM, pass_on, &old_term_);
    set(SIGHUP, pass_on, &old_hup_);
    set(SIGINT, [](int) {}, &old_int_);
  }
  ~Signals() {
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGHUP, &old_hup_, nullptr);
    ::sigaction(SIGINT, &old_int_, nullptr);
  }

 private:
  static void set(int signal, void (*handler)(int), struct sigaction* old) {
    struct sigaction action{};
    action.sa_handler = handler;
    ::sigaction(signal, &action, old);
  }
  struct sigaction old_term_{}, old_hup_{}, old_int_{};
};

[[noreturn]] void become(const Words& command, const Environment& environment, const std::string& output,
                         int failed) {
  apply(environment);
  repeat_host_addresses();
  if (!output.empty()) {
    const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int code = errno;
  static_cast<void>(!::write(failed, &code, sizeof code));
  ::_exit(kNotFound);
}

int wait_for(pid_t pid, const std::function<void()>& tick) {
  int status = 0;
  for (auto pause = std::chrono::milliseconds(5);;
       pause = std::min(pause * 2, std::chrono::milliseconds(250))) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) return kCannotRun;
    if (pause >= std::chrono::milliseconds(250)) tick();
    std::this_thread::sleep_for(pause);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ChildEnd run_child(const Words& command, const Environment& environment, const std::string& output,
                   const std::function<void()>& tick) {
  ChildEnd end;
  int failed[2];  // closed by exec; carries the errno of one that fails
  if (::pipe2(failed, O_CLOEXEC) != 0) return {kCannotRun, errno};
  const pid_t pid = ::fork();
  if (pid < 0) return {kCannotRun, errno};
  if (pid == 0) become(command, environment, output, failed[1]);
  ::close(failed[1]);
  child = pid;
  {
    const Signals signals;
    const bool not_started = ::read(failed[0], &end.start_error, sizeof end.start_error) > 0;
    end.exit_code = wait_for(pid, tick);
    if (!not_started) end.start_error = 0;
  }
  child = 0;
  ::close(failed[0]);
  return end;
}

}  // namespace spillway::tools
