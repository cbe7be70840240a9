#include "tools/spillway/run/oom_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tools/spillway/report/trace/trace_report.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/run/apart.h"

namespace spillway::tools {
namespace {

constexpr std::chrono::minutes kMost{1};

std::string verdict_of(const std::string& trace) {
  std::string unread;
  const auto report = trace.empty() ? nullptr : read_trace_report(trace, &unread);
  if (report == nullptr || report->incident() == nullptr) return "";
  const Verdict verdict = judge(*report->incident());
  return std::string(cause_name(verdict.cause)) + ": " + verdict.text;
}

int become_command(const std::string& command, const OutOfMemory& failure) {
  ::setenv("SPILLWAY_OOM_PROCESS", std::to_string(failure.process).c_str(), 1);
  ::setenv("SPILLWAY_OOM_TRACE", failure.trace.c_str(), 1);
  ::setenv("SPILLWAY_OOM_PAGE", failure.page.c_str(), 1);
  ::setenv("SPILLWAY_OOM_VERDICT", verdict_of(failure.trace).c_str(), 1);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
  return 126;
}

}  // namespace

void run_oom_command(const std::string& command, const OutOfMemory& failure) {
  const ApartEnd end = run_apart([&] { return become_command(command, failure); }, kMost);
  if (!end.in_time)
    std::fprintf(stderr, "spillway: --on-oom-command: stopped: it took longer than a minute\n");
  else if (end.code != 0)
    std::fprintf(stderr, "spillway: --on-oom-command ended with %d: %s\n", end.code, command.c_str());
}

}  // namespace spillway::tools
