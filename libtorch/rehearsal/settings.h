// What the tool tells the probe, in the environment.
//
// Thread-safety: read once, then constant. Errors: none; what is not set is off.
#pragma once
#include <cstdint>
#include <string>

namespace spillway::rehearsal {

struct Settings {
  std::string
      result_path;  // SPILLWAY_REHEARSAL_RESULT, "%p" in the file's name replaced; "": nothing is written
  std::string stream_path;   // SPILLWAY_REHEARSAL_STREAM, "%p" replaced
  std::string history_path;  // SPILLWAY_REHEARSAL_HISTORY, "%p" replaced
  std::string allocator;     // SPILLWAY_REHEARSAL_ALLOCATOR: "spillway" installs it
  uint64_t steps = 0;        // SPILLWAY_REHEARSAL_STEPS: ends the program after these; 0: never
  std::string values;        // SPILLWAY_SIM_VALUES
};

const Settings& settings();

}  // namespace spillway::rehearsal
