// One thing that was tried on this machine, and the trying in a process of its own, so that what hangs or
// crashes is only that.
//
// Thread-safety: one thread. Errors: a child that cannot be made, crashes or is late is a finding. Units:
// seconds.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/command.h"
#include "tools/spillway/simulated_machine.h"

namespace spillway::tools {

enum class TrialState : uint8_t { kOk, kLimited, kMissing };

struct Trial {
  std::string name;
  TrialState state = TrialState::kOk;
  std::string found;   // what was tried and what came of it, in one line
  std::string advice;  // what to do about it; "" where there is nothing to do
};

struct ChildAnswer {
  bool in_time = false;
  int exit_code = -1;  // 128 + the signal that ended it
  std::string output;  // of both streams, at most 64 KiB
};

// Runs a command with variables of its own. It and what it started are killed at the deadline.
ChildAnswer run_for(double seconds, const Words& command, const Environment& environment);
// What `trials` finds in a forked child; if that does not end well, one finding of that name which says so.
std::vector<Trial> try_for(double seconds, const std::string& name,
                           const std::function<std::vector<Trial>()>& trials);
// "did not end within 5 s", "ended with exit code 1", "ended by signal 9"; "" for what ended well.
std::string failure_text(const ChildAnswer& answer, double seconds);

}  // namespace spillway::tools
