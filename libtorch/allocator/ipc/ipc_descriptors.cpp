#include "libtorch/allocator/ipc/ipc_descriptors.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/descriptor_limit.h"
#include "libtorch/allocator/ipc/ipc_socket.h"

namespace spillway::libtorch {
namespace {

constexpr long kPidfdOpen = 434, kPidfdGetfd = 438;  // older headers lack them

// Field 22 of /proc/N/stat; 0 when there is none to read.
uint64_t start_time_of(int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  size_t at = name_end;
  constexpr int kFieldsBefore = 20;  // between the name and the start time
  for (int field = 0; field < kFieldsBefore && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

std::string yama() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  std::string scope;
  return file >> scope ? "; kernel.yama.ptrace_scope is " + scope : "";
}

std::string ended(const ParsedHandle& handle) {
  return "process " + std::to_string(handle.sharer.process) + ", which shared it, has ended";
}

}  // namespace

const Sharer& this_sharer() {
  static const Sharer sharer{getpid(), start_time_of(getpid()), start_descriptor_server()};
  return sharer;
}

Descriptors::~Descriptors() {
  clear();
}

void Descriptors::clear() {
  for (const int descriptor : list_) close(descriptor);
  list_.clear();
}

int Descriptors::take(int process, const ParsedHandle& handle) {
  for (const spillway_shared_page& page : handle.pages) {
    const auto descriptor = static_cast<int>(syscall(kPidfdGetfd, process, page.descriptor, 0));
    if (descriptor < 0) return errno;
    list_.push_back(descriptor);  // close-on-exec, as the system makes them
  }
  return 0;
}

std::string Descriptors::explain(int error, const ParsedHandle& handle) const {
  const std::string process = std::to_string(handle.sharer.process);
  if (error == ESRCH) return ended(handle);
  if (error == EBADF) return "process " + process + " has freed it meanwhile";
  if (error == EMFILE || error == ENFILE)
    return "it needs " + std::to_string(handle.pages.size()) +
           " file descriptors for a moment: raise ulimit -n";
  if (error == EPERM)
    return "this process may not take file descriptors of process " + process +
           " (pidfd_getfd: Operation not permitted" + yama() +
           "): allow it with sysctl kernel.yama.ptrace_scope=0, or in a container with --cap-add=SYS_PTRACE" +
           (handle.by_spillway ? "" : ", or use Spillway's allocator in that process too");
  return std::string("pidfd_getfd: ") + std::strerror(error);
}

std::string Descriptors::ask(const ParsedHandle& handle) {
  raise_descriptor_limit();  // what does not fit is lost without a word
  std::vector<uint64_t> serials;
  serials.reserve(handle.pages.size());
  for (const spillway_shared_page& page : handle.pages) serials.push_back(page.serial);
  return ask_descriptor_server(handle.sharer.socket, handle.sharer.process, serials, &list_);
}

std::string Descriptors::fetch(const ParsedHandle& handle) {
  clear();
  const Sharer& sharer = handle.sharer;
  if (sharer.start_time != 0) {
    const uint64_t now = start_time_of(sharer.process);
    if (now != 0 && now != sharer.start_time) return ended(handle);
  }
  int error = 0;
  const auto process = static_cast<int>(syscall(kPidfdOpen, sharer.process, 0));
  if (process < 0) {
    error = errno;
  } else {
    error = take(process, handle);
    if (error == EMFILE && raise_descriptor_limit()) {
      clear();
      error = take(process, handle);
    }
    close(process);
  }
  if (error == 0) return "";
  clear();
  const bool forbidden = error == EPERM || error == ENOSYS || error == EACCES;
  if (!forbidden || sharer.socket == decltype(sharer.socket){}) return explain(error, handle);
  const std::string why_not = ask(handle);
  if (why_not.empty()) return "";
  clear();
  return explain(error, handle) + "; nor at its socket: " + why_not;
}

}  // namespace spillway::libtorch
