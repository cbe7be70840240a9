// `spillway run`: runs a program under the preloaded library and says at its end what was met and rescued.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "strategies/environment.h"
#include "tools/spillway/command.h"
#include "tools/spillway/library_folders.h"
#include "tools/spillway/rehearse/child.h"
#include "tools/spillway/run/preload.h"
#include "tools/spillway/run/summary.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using interpose::Mode;
namespace fs = std::filesystem;

struct RunSettings {
  std::string mode = "rescue";
  std::string limit, trace, strategies;
  bool quiet = false;
};

Mode mode_of(const std::string& name) {
  if (name == "observe") return Mode::kObserve;
  return name == "replace" ? Mode::kReplace : Mode::kRescue;
}

bool check_trace(const std::string& trace, std::string* error) {
  if (trace.empty()) return true;
  std::error_code unknown;
  const fs::path folder = fs::absolute(trace, unknown).parent_path();
  if (fs::is_directory(folder, unknown)) return true;
  *error = "--trace: there is no folder '" + folder.string() + "'";
  return false;
}

// What the core would refuse later, in the program's process, is refused here.
bool check(const RunSettings& settings, std::string* error) {
  spillway::Environment unused;
  if (!parse_strategies(settings.strategies, &unused, error)) {
    *error = "--strategies" + error->substr(std::min(error->find(':'), error->size()));
    return false;
  }
  if (!check_trace(settings.trace, error)) return false;
  if (settings.limit.empty()) return true;
  if (settings.mode != "replace") {
    *error = "--limit is of Spillway's own allocator: add --mode replace";
    return false;
  }
  const auto bytes = parse_size(settings.limit);
  if (bytes && *bytes >= (uint64_t{2} << 20)) return true;
  *error = "--limit is '" + settings.limit + "': write " + kSizesAccepted + ", at least 2MiB";
  return false;
}

// A report of its own for each process, in the current folder where one can be written.
std::string trace_path(const RunSettings& settings) {
  if (!settings.trace.empty()) return fs::absolute(settings.trace).string();
  if (settings.mode == "observe" || ::access(".", W_OK) != 0) return "";
  return (fs::current_path() / "spillway-%p.spill").string();
}

Environment environment_of(const RunSettings& settings, const std::string& library,
                           const SharedSummary& summary) {
  Environment environment;
  environment["LD_PRELOAD"] = put_in_front("LD_PRELOAD", library);
  environment["SPILLWAY_MODE"] = settings.mode;
  environment["SPILLWAY_RUN_SUMMARY"] = summary.path();
  if (!settings.limit.empty())
    environment["SPILLWAY_LIMIT"] = std::to_string(parse_size(settings.limit).value_or(0));
  if (!settings.strategies.empty()) environment["SPILLWAY_STRATEGIES"] = settings.strategies;
  if (const std::string trace = trace_path(settings); !trace.empty()) environment["SPILLWAY_TRACE"] = trace;
  return environment;
}

void say_end(const RunSettings& settings, const RunTotals& totals) {
  for (const std::string& reason : totals.refusals)
    std::fprintf(stderr, "spillway: PyTorch's own allocator stayed: %s\n", reason.c_str());
  if (totals.alone != 0)
    std::fprintf(
        stderr,
        "spillway: %s could not ask other processes for memory: SPILLWAY_LEDGER is off, or there is no "
        "shared memory\n",
        count_text(totals.alone, "process", "processes").c_str());
  const bool asked = !settings.trace.empty();
  for (const std::string& trace : asked ? std::vector<std::string>{} : totals.clean_traces) {
    std::error_code ignored;
    fs::remove(trace, ignored);
  }
  std::string reports;
  for (const std::string& trace : totals.traces) reports += "; report: spillway report " + trace;
  std::fprintf(stderr, "spillway: %s%s\n", summary_line(totals, mode_of(settings.mode)).c_str(),
               reports.c_str());
}

int run(const RunSettings& settings, const Words& command) {
  std::string error, library;
  SharedSummary summary;
  if (!check(settings, &error) || !find_preload_library(&library, &error) ||
      !can_be_preloaded(command.front(), &error) || !summary.open(&error))
    return fail(kUsageError, "run: " + error);
  const ChildEnd end =
      run_child(command, environment_of(settings, library, summary), "", [] {}, HostAddresses::kAsUsual);
  if (end.start_error != 0) {
    const int code = end.start_error == ENOENT ? kNotFound : kCannotRun;
    return fail(code, "run: " + cannot_run_text(command.front(), end.start_error));
  }
  if (!settings.quiet) say_end(settings, summary.totals());
  return end.exit_code;
}

std::function<int()> declare(CLI::App& app, const Words& command) {
  auto settings = std::make_shared<RunSettings>();
  app.add_option(
         "--mode", settings->mode,
         "observe: only count; rescue (default): the program's memory stays as it is, and room is made "
         "by what caches hold; replace: Spillway becomes PyTorch's allocator too")
      ->check(CLI::IsMember({"observe", "rescue", "replace"}));
  app.add_option("--limit", settings->limit,
                 std::string("With --mode replace, what Spillway's allocator may use of each device: ") +
                     kSizesAccepted);
  app.add_option("--strategies", settings->strategies,
                 "Names by commas of the strategies that may be used, or none; all without it");
  app.add_option("--trace", settings->trace,
                 "File for the report; %p is the process id. Without it spillway-%p.spill, kept where a "
                 "failure was met");
  app.add_flag("--quiet", settings->quiet, "Without the line at the end");
  return [settings, command] { return run(*settings, command); };
}

}  // namespace

Command run_command() {
  return {"run", "Run a program that survives running out of GPU memory",
          "spillway run --mode replace -- python train.py", true, declare};
}

}  // namespace spillway::tools
