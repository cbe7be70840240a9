// What a stack is called: the line that asked for the memory, and the program's own line that led there.
//
// Thread-safety: one thread. Ownership: keeps a reference to the history, whose texts it reads. Errors: none.
#pragma once
#include <map>
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

struct StackName {
  std::string where;   // "model.py:47 forward"
  std::string caller;  // "" if it is the same
  auto operator<=>(const StackName&) const = default;
};

// PyTorch names frames of C++ as the linker does; those of the program are Python's.
bool is_python(const StackFrame& frame);

// Names each stack once.
class StackNames {
 public:
  explicit StackNames(const MemoryHistory& history) : history_(history) {}
  const StackName& of(StackId stack);

 private:
  const MemoryHistory& history_;
  std::map<StackId, StackName> names_;
};

}  // namespace spillway::tools
