// What a run says: lines on the console and in `train.log`, and as data in `train.jsonl`.
//
// On a terminal the steps are one line that is drawn anew; everything else is printed above it. `train.log`
// has a time and a level before each line, and at most three files of 8 MiB (train.1.log and train.2.log are
// the older ones). `train.jsonl` has one object a line. A file that cannot be written is named once on the
// standard error and left alone from there on: no log is worth a training.
//
// Thread-safety: one thread. Ownership: the files and the console's last line. Errors: none; see above.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "trainer/app/progress.h"

namespace spillway::trainer {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
inline constexpr const char* kLogLevels[] = {"debug", "info", "warning", "error"};

class RunLog {
 public:
  // `least`: one of kLogLevels, for the lines; data are all written. `quiet`: nothing on the console.
  RunLog(std::string_view least, bool quiet);
  ~RunLog();  // takes the progress line away
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Begins the files, in a folder that exists, with the lines that were said before. `resumed`: behind those
  // of the run that stopped.
  void open(const std::string& folder, bool resumed, bool data);

  // Each line of `text` is one of its own.
  void say(LogLevel level, const std::string& text);
  // A step's line; on a terminal `progress` takes its place there.
  void step(const std::string& line, const Progress& progress);
  // Text that is no UTF-8 is mended, numbers that are none become null.
  void record(const nlohmann::ordered_json& event);
  // For the files: the console has the table of results instead.
  void end(const std::string& verdict, int exit_code);

 private:
  struct Outputs;
  std::unique_ptr<Outputs> outputs_;
};

}  // namespace spillway::trainer
