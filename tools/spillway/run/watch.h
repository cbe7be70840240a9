// What `run` does of its own while a program runs and when it has ended: pages of what was not rescued, and
// the user's command.
//
// A failure that is not rescued has its page a moment later, though the program may go on. So has every
// process when the run is told to end (SIGTERM, SIGHUP): a scheduler may kill all of it soon. Thread-safety:
// one thread. Ownership: the summary is the caller's, and outlives this.
#pragma once
#include <cstddef>
#include <map>
#include <string>

#include "tools/spillway/run/summary.h"

namespace spillway::tools {

class Watch {
 public:
  // `command`: what is run at the first failure that is not rescued; "": nothing.
  Watch(const SharedSummary& summary, std::string command, bool quiet)
      : summary_(summary), command_(std::move(command)), quiet_(quiet) {}

  // A few times a second.
  void look();
  // When the program has ended; `well`: with code 0.
  void finish(bool well);
  // Of these a page was written, whatever they met.
  bool has_page(const std::string& trace) const;

 private:
  struct Seen {
    uint64_t gave_up = 0;  // when last looked at
    uint64_t on_page = 0;  // of them, on the page
    std::string page_of;   // the trace; "": there is no page
  };

  void tell_of_failure(const ProcessState& process, Seen* seen);
  void write(const ProcessState& process, bool lost, Seen* seen);

  const SharedSummary& summary_;
  const std::string command_;
  const bool quiet_;
  bool stopping_ = false, command_run_ = false;
  std::map<size_t, Seen> seen_;  // by the process's place in the summary
};

}  // namespace spillway::tools
