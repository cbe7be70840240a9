#include "tools/spillway/run/watch.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/report_page.h"
#include "tools/spillway/rehearse/run/child.h"
#include "tools/spillway/run/oom_command.h"
#include "tools/spillway/run/pages.h"

namespace spillway::tools {
namespace {

// Of a job with many ranks that die at once, some are enough, and each takes a moment.
constexpr std::ptrdiff_t kMostPages = 4;

}  // namespace

void Watch::write(const ProcessState& process, bool lost, Seen* seen) {
  const bool is_first = seen->page_of.empty();
  const auto pages =
      std::ranges::count_if(seen_, [](const auto& one) { return !one.second.page_of.empty(); });
  if (process.trace.empty() || (is_first && pages >= kMostPages)) return;
  if (write_page(process.trace, lost ? was_lost : was_cut_off) != PageEnd::kWritten) return;
  seen->page_of = process.trace;
  if (!is_first || quiet_) return;
  std::fprintf(stderr, "spillway: %s, as a page for a browser: %s\n",
               lost ? "why it ran out" : "what it held when it was stopped",
               page_beside(process.trace).c_str());
}

void Watch::tell_of_failure(const ProcessState& process, Seen* seen) {
  seen->on_page = process.gave_up;
  write(process, true, seen);
  if (command_.empty() || std::exchange(command_run_, true)) return;
  const std::string page = seen->page_of.empty() ? "" : page_beside(seen->page_of);
  run_oom_command(command_, {process.process, process.trace, page});
}

void Watch::look() {
  const bool stops = stop_signal() == SIGTERM || stop_signal() == SIGHUP;
  const bool stopped_now = stops && !std::exchange(stopping_, stops);
  for (const ProcessState& process : summary_.processes()) {
    Seen& seen = seen_[process.place];
    // A look later: the process may still write who held it.
    if (process.gave_up != 0 && seen.on_page == 0 && process.gave_up == seen.gave_up)
      tell_of_failure(process, &seen);
    seen.gave_up = process.gave_up;
    if (stopped_now) write(process, process.gave_up != 0, &seen);
  }
}

void Watch::finish(bool well) {
  const bool is_wanted = stop_signal() != SIGINT;
  for (const ProcessState& process : summary_.processes()) {
    Seen& seen = seen_[process.place];
    if (process.gave_up > seen.on_page)
      tell_of_failure(process, &seen);
    else if (!well && is_wanted && process.gave_up == 0)
      write(process, false, &seen);
  }
}

bool Watch::has_page(const std::string& trace) const {
  return std::ranges::any_of(seen_, [&](const auto& one) { return one.second.page_of == trace; });
}

}  // namespace spillway::tools
