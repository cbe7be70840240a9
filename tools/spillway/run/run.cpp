// `spillway run`: runs a program under the preloaded library and says at its end what was met and rescued.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "strategies/core/environment.h"
#include "tools/spillway/command.h"
#include "tools/spillway/library_folders.h"
#include "tools/spillway/rehearse/run/child.h"
#include "tools/spillway/run/earlier_runs.h"
#include "tools/spillway/run/edge.h"
#include "tools/spillway/run/pages.h"
#include "tools/spillway/run/preload.h"
#include "tools/spillway/run/settings.h"
#include "tools/spillway/run/summary.h"
#include "tools/spillway/run/watch.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using interpose::Mode;
namespace fs = std::filesystem;

Mode mode_of(const std::string& name) {
  if (name == "observe") return Mode::kObserve;
  return name == "replace" ? Mode::kReplace : Mode::kRescue;
}

// A trace that the environment names is as one that --trace names, unless a `run` around this one set it.
void take_inherited_trace(RunSettings* settings) {
  const char* const named = std::getenv("SPILLWAY_TRACE");
  if (settings->trace.empty() && named != nullptr && std::getenv("SPILLWAY_RUN_SUMMARY") == nullptr)
    settings->trace = named;
}

// A report of its own for each process, in the current folder where one can be written.
std::string trace_path(const RunSettings& settings) {
  if (!settings.trace.empty()) return fs::absolute(settings.trace).string();
  return settings.mode == "observe" ? "" : trace_in_current_folder();
}

Environment environment_of(const RunSettings& settings, const std::string& library,
                           const SharedSummary& summary) {
  Environment environment;
  environment["LD_PRELOAD"] = put_in_front("LD_PRELOAD", library);
  environment["SPILLWAY_MODE"] = settings.mode;
  environment["SPILLWAY_RUN_SUMMARY"] = summary.path();
  if (!settings.limit.empty())
    environment["SPILLWAY_LIMIT"] = std::to_string(parse_size(settings.limit).value_or(0));
  if (!settings.reserve.empty())
    environment["SPILLWAY_RESERVE"] = std::to_string(parse_size(settings.reserve).value_or(0));
  if (!settings.guarantee.empty())
    environment["SPILLWAY_GUARANTEE"] = std::to_string(parse_size(settings.guarantee).value_or(0));
  if (!settings.strategies.empty()) environment["SPILLWAY_STRATEGIES"] = settings.strategies;
  if (!settings.host_budget.empty()) environment["SPILLWAY_HOST_BUDGET"] = settings.host_budget;
  if (!settings.peer_budget.empty()) environment["SPILLWAY_PEER_BUDGET"] = settings.peer_budget;
  if (!settings.nvme.empty()) environment["SPILLWAY_NVME"] = fs::absolute(settings.nvme).string();
  if (!settings.max_slowdown.empty()) environment["SPILLWAY_MAX_SLOWDOWN"] = settings.max_slowdown;
  if (!settings.stacks.empty()) environment["SPILLWAY_STACKS"] = settings.stacks;
  if (const std::string trace = trace_path(settings); !trace.empty()) {
    environment["SPILLWAY_TRACE"] = trace;
    // The disk may be full once memory runs out.
    environment["SPILLWAY_TRACE_OPTIONAL"] = "1";
  }
  return environment;
}

void put(const std::string& name, const std::optional<std::string>& value) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs yet
  value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
}

// What the program inherits counts too: the core reads both together, and would start in none of its
// processes. This one's variables are as before then.
bool check_with_inherited(const RunSettings& settings, const Environment& environment, std::string* error) {
  if (settings.mode == "observe") return true;
  Environment before;
  for (const auto& [name, value] : environment) {
    const char* const held = std::getenv(name.c_str());
    before[name] = held == nullptr ? std::nullopt : std::optional<std::string>(held);
    put(name, value);
  }
  spillway::Environment unused;
  const bool right = read_environment(&unused, error);
  for (const auto& [name, value] : before) put(name, value);
  return right;
}

// Unless the user asked for the files by name, or a page was made of one: then it is a report.
void remove_clean_traces(const RunSettings& settings, const Watch& watch, RunTotals* totals) {
  for (const std::string& trace : totals->clean_traces) {
    std::error_code ignored;
    if (watch.has_page(trace))
      totals->traces.push_back(trace);
    else if (settings.trace.empty())
      fs::remove(trace, ignored);
  }
}

// What is said of it beside the run before, which it is for the next one.
std::string compare_with_earlier(const Words& command, const RunTotals& totals, StepSlowdown* slowdown) {
  if (totals.processes == 0) return "";
  const EarlierRuns earlier(command);
  const RunRecord now = measure_run(totals, slowdown);
  const std::string line = edge_line(totals, now, earlier.last());
  earlier.add(now);
  return line;
}

void say_end(const RunSettings& settings, const RunTotals& totals, const std::string& edge,
             const StepSlowdown& slowdown) {
  for (const std::string& reason : totals.refusals)
    std::fprintf(stderr, "spillway: PyTorch's own allocator stayed: %s\n", reason.c_str());
  for (const std::string& names : totals.unlisted)
    std::fprintf(stderr,
                 "spillway: the program calls functions of the driver that this version does not know, and "
                 "memory that they take is not counted: %s\n",
                 names.c_str());
  if (totals.alone != 0)
    std::fprintf(
        stderr,
        "spillway: %s could not ask other processes for memory: SPILLWAY_LEDGER is off, or there is no "
        "shared memory ('spillway doctor' tries it)\n",
        count_text(totals.alone, "process", "processes").c_str());
  if (!edge.empty()) std::fprintf(stderr, "spillway: %s\n", edge.c_str());
  if (slowdown.most() != 0)
    std::fprintf(stderr, "spillway: moved memory made the program's steps %s\n",
                 slowdown_text(slowdown).c_str());
  if (mode_of(settings.mode) == interpose::Mode::kRescue && totals.incidents.gave_up != 0)
    std::fprintf(stderr, "spillway: this mode moves no memory that PyTorch has in use; --mode replace can\n");
  std::string reports;
  for (const std::string& trace : totals.traces) reports += "; report: spillway report " + trace;
  std::fprintf(stderr, "spillway: %s%s\n", summary_line(totals, mode_of(settings.mode)).c_str(),
               reports.c_str());
}

int run(RunSettings settings, const Words& command) {
  std::string error, library;
  SharedSummary summary;
  take_inherited_trace(&settings);
  if (!check(settings, &error) || !find_preload_library(&library, &error) ||
      !can_be_preloaded(command.front(), &error) || !summary.open(&error))
    return fail(kUsageError, "run: " + error);
  const Environment environment = environment_of(settings, library, summary);
  if (!check_with_inherited(settings, environment, &error)) return fail(kUsageError, "run: " + error);
  Watch watch(summary, settings.on_oom_command, settings.quiet);
  const ChildEnd end =
      run_child(command, environment, "", [&watch] { watch.look(); }, HostAddresses::kAsUsual);
  if (end.start_error != 0) {
    const int code = end.start_error == ENOENT ? kNotFound : kCannotRun;
    return fail(code, "run: " + cannot_run_text(command.front(), end.start_error));
  }
  watch.finish(end.exit_code == 0);
  RunTotals totals = summary.totals();
  StepSlowdown slowdown;
  const std::string edge = compare_with_earlier(command, totals, &slowdown);
  remove_clean_traces(settings, watch, &totals);
  if (!settings.quiet) say_end(settings, totals, edge, slowdown);
  return end.exit_code;
}

CLI::Option* add(CLI::App& app, const RunOption& option, RunSettings* settings) {
  const std::string name = std::string("--") + option.name;
  if (const auto* flag = std::get_if<bool RunSettings::*>(&option.field))
    return app.add_flag(name, settings->**flag, option.help);
  const auto field = std::get<std::string RunSettings::*>(option.field);
  CLI::Option* added = app.add_option(name, settings->*field, option.help);
  return option.choices.empty() ? added : added->check(CLI::IsMember(option.choices));
}

std::function<int()> declare_run(CLI::App& app, const Words& command) {
  auto settings = std::make_shared<RunSettings>();
  auto file = std::make_shared<std::string>();
  for (const RunOption& option : run_options()) add(app, option, settings.get());
  app.add_option("--config", *file, "TOML file of these options' names; what the command line says wins");
  return [&app, settings, file, command] {
    std::string error;
    const auto is_given = [&app](const std::string& name) {
      const CLI::Option* option = app.get_option_no_throw("--" + name);
      return option != nullptr && option->count() != 0;
    };
    if (!file->empty() && !read_run_file(*file, is_given, settings.get(), &error))
      return fail(kUsageError, "run: " + error);
    return run(*settings, command);
  };
}

}  // namespace

Command run_command() {
  return {"run", "Run a program that survives running out of GPU memory",
          "spillway run --mode replace -- python train.py", true, declare_run};
}

}  // namespace spillway::tools
