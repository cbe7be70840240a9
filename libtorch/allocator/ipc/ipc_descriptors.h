// File descriptors from one process to another.
//
// First by pidfd_getfd, which needs nothing of the process that has them, then, where the system forbids that
// (Yama's ptrace_scope, a container's system call filter), by asking it at a socket: a process that shares
// memory has a thread that gives descriptors of shared pages to processes of the same user.
//
// Thread-safety: every function may be called from any thread. Errors: texts. A process that has died or
// stopped is an error, after a bounded time.
#pragma once
#include <string>
#include <vector>

#include "libtorch/allocator/ipc/ipc_format.h"

namespace spillway::libtorch {

// This process, ready to give descriptors away.
const Sharer& this_sharer();

// Owns what it holds.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // Of the pages that `handle` names, in their order. "" or why they cannot be had.
  std::string fetch(const ParsedHandle& handle);
  const std::vector<int>& list() const { return list_; }

 private:
  void clear();
  int take(int process, const ParsedHandle& handle);  // 0 or errno
  std::string ask(const ParsedHandle& handle);
  std::string explain(int error, const ParsedHandle& handle) const;

  std::vector<int> list_;
};

}  // namespace spillway::libtorch
