// Which process it is that shares memory with others, and whether it is still there. Its id alone does not
// say: it may be used again, and a zombie still has one, though the system has taken its memory back. It
// belongs to no folder: everybody may use it.
//
// Thread-safety: any thread. Ownership: plain values, which may lie in memory that processes share. Errors: a
// process that cannot be looked at is gone. Units: clock ticks since boot for the start.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace spillway {

struct ProcessIdentity {
  uint64_t id = 0, start = 0;
};

// The 22nd field of /proc/ID/stat; 0 for a process that is gone or a zombie. The name, the second field, is
// in parentheses and may hold anything.
inline uint64_t start_of(uint64_t id) {
  constexpr int kBetween = 18;  // fields between the state, the third, and the start
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  std::getline(file, text, '\0');  // unlike an iterator over the file's buffer it throws nothing
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  char state = 0;
  uint64_t start = 0;
  fields >> state;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> start;
  return fields && state != 'Z' && state != 'X' ? start : 0;
}

inline ProcessIdentity this_process() {
  const auto id = static_cast<uint64_t>(getpid());
  return {id, start_of(id)};
}

inline bool is_alive(const ProcessIdentity& process) {
  return process.start != 0 && start_of(process.id) == process.start;
}

}  // namespace spillway
