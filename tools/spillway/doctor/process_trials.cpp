#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "processes/ledger.h"
#include "tools/spillway/doctor/trials.h"

namespace spillway::tools {
namespace {

// Runs `work` in a child and returns its exit code.
int in_child(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Two members of a ledger of the trial's own, of which one sees the other.
Trial try_ledger() {
  const std::string name = "ledger of processes";
  const char* advice =
      "processes cannot ask each other for memory; share /dev/shm and process ids with them "
      "(docker run --ipc=host --pid=host), as one user";
  if (ledger_name().empty()) return {name, TrialState::kLimited, "SPILLWAY_LEDGER is off", "unset it"};
  const std::string segment = "spillway-doctor-" + std::to_string(::getpid());
  std::string why_not;
  const std::unique_ptr<Ledger> ledger = Ledger::join(segment, &why_not);
  if (ledger == nullptr) return {name, TrialState::kLimited, why_not, advice};
  const int peers = in_child([&] {
    std::string unread;
    const std::unique_ptr<Ledger> other = Ledger::join(segment, &unread);
    return other == nullptr ? 100 : static_cast<int>(other->peers());
  });
  ::shm_unlink(("/" + segment).c_str());
  if (peers == 1) return {name, TrialState::kOk, "two processes joined one, and saw each other", ""};
  return {name, TrialState::kLimited, "a second process that joined did not see the first", advice};
}

// A child takes a descriptor out of its parent, as a process that receives a tensor does.
Trial try_descriptors() {
  const std::string name = "descriptors of processes";
  const pid_t parent = ::getpid();
  const int own = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int code = in_child([parent, own] {
    const long process = ::syscall(SYS_pidfd_open, parent, 0);
    if (process < 0) return errno;
    return ::syscall(SYS_pidfd_getfd, process, own, 0) < 0 ? errno : 0;
  });
  ::close(own);
  if (code == 0) return {name, TrialState::kOk, "pidfd_getfd took one out of another process", ""};
  return {name, TrialState::kLimited,
          "pidfd_getfd: " +
              (code > 0 ? std::generic_category().message(code) : std::string("the trial was ended")) +
              ": tensors are shared through a socket instead",
          "nothing, or set kernel.yama.ptrace_scope to 0 (in a container: --cap-add SYS_PTRACE)"};
}

}  // namespace

std::vector<Trial> try_processes() {
  return {try_ledger(), try_descriptors()};
}

}  // namespace spillway::tools
