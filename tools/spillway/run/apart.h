// Work in a process of its own: what goes wrong there, or takes too long, ends nothing here.
//
// Thread-safety: of a process with one thread. Errors: no process is code 127, as a crash is 128 and its
// signal.
#pragma once
#include <chrono>
#include <functional>

namespace spillway::tools {

struct ApartEnd {
  int code = 127;  // what `work` gave, or 128 and the signal that ended it
  bool in_time = true;
};

// Waits for it, for at most so long; then it is killed, with all that it started. SIGINT to this process ends
// it too.
ApartEnd run_apart(const std::function<int()>& work, std::chrono::milliseconds most);

}  // namespace spillway::tools
