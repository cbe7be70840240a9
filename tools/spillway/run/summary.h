// The file in which the processes of a run count (interpose/summary.h), and the one line
// that is made of it.
//
// Thread-safety: one thread. Ownership: the file has no name and ends with its holder and the last process
// that maps it. Errors: `open` says why there is none.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "interpose/summary.h"

namespace spillway::tools {

// All processes together.
struct RunTotals {
  unsigned processes = 0;
  uint64_t driver_calls = 0, launches = 0;
  spillway_incident_totals incidents{};
  std::vector<std::string> refusals;  // why `replace` was refused, each reason once
  std::vector<std::string> unlisted;  // functions of a newer driver that a process called, each text once
  int runtime_major = 0, driver_version = 0;  // of a CUDA runtime that finds the driver too old; 0: none does
  unsigned replaced = 0;
  unsigned alone = 0;                     // took no part in the ledger, though their mode does
  std::vector<std::string> traces;        // of processes that met a failure
  std::vector<std::string> clean_traces;  // of the others
};

// One of them, so far.
struct ProcessState {
  size_t place = 0;  // its own; that of the one that it became by exec is another
  int process = 0;
  uint64_t gave_up = 0;  // failures that were not rescued
  std::string trace;     // "": none yet
};

class SharedSummary {
 public:
  SharedSummary() = default;
  SharedSummary(const SharedSummary&) = delete;
  SharedSummary& operator=(const SharedSummary&) = delete;
  ~SharedSummary();

  bool open(std::string* error);
  // For the processes: a path that stays good while this one lives.
  const std::string& path() const { return path_; }
  RunTotals totals() const;
  std::vector<ProcessState> processes() const;

 private:
  int descriptor_ = -1;
  std::string path_;
  interpose::SummaryFile* file_ = nullptr;
};

// "spillway: 3 failures met, 2 rescued (1.5 GiB in 12 ms), 1 given up": what `run` says at the end.
std::string summary_line(const RunTotals& totals, interpose::Mode mode);

}  // namespace spillway::tools
