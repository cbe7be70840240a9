// What a rank says of itself every few moments, so that the others know that it lives and what it does.
//
// Thread-safety: values and functions of the system's state. Errors: a text that is no beat gives nothing; a
// process that cannot be looked at is on another machine. Units: seconds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace spillway::trainer {

struct Beat {
  uint64_t count = 0;        // grows with each
  uint64_t step = 0;         // that it is in, from 0
  std::string doing{};       // "backward", "a sum over the ranks"
  bool waits = false;        // for the others
  double quiet_seconds = 0;  // that it does this
  bool overdue = false;      // longer than this rank has seen and the bound allows
  bool left = false;         // it needs nobody any more
  // The process, for those on the same machine.
  std::string machine{};
  uint64_t process = 0, process_start = 0;

  bool operator==(const Beat&) const = default;
};

std::string to_text(const Beat& beat);
std::optional<Beat> beat_of(const std::string& text);
// "in step 12: backward since 3.1 s".
std::string place_of(const Beat& beat);

// Names this machine, and the numbers of processes that hold here: containers may have their own.
std::string this_machine();

enum class ProcessSeen : uint8_t { kElsewhere, kRuns, kStopped, kGone };
ProcessSeen look_at(const Beat& beat);

}  // namespace spillway::trainer
