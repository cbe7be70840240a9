// `spillway diff`: what grew between two runs, or between two steps of one.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/diff/difference.h"
#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/input_file.h"
#include "tools/spillway/report/trace/read_history.h"

namespace spillway::tools {
namespace {

struct Options {
  std::vector<std::string> files;
  std::vector<uint64_t> steps;
  std::string at = "peak";
  bool json = false;
};

struct Side {
  MemoryHistory history;
  int device = 0;
  size_t end = 0;  // the event of the last failure, else the end
};

std::optional<Side> read_side(const std::string& path, std::string* error) {
  if (*error = not_a_file(path); !error->empty()) return std::nullopt;
  auto history = read_history(path, error);
  if (!history) return std::nullopt;
  const auto found = look_into(*history, std::nullopt);
  if (!found || found->allocations == 0) {
    *error = path + ": holds no history of requests" + kWhoWritesOne;
    return std::nullopt;
  }
  const size_t events = history->devices.at(found->device).events.size();
  return Side{std::move(*history), found->device, found->failure_event.value_or(events)};
}

MomentSide moment_of(const Side& side, const std::string& at) {
  const size_t peak = peak_of(side.history.devices.at(side.device));
  return {&side.history, side.device, at == "peak" ? std::min(peak, side.end) : side.end};
}

int show(const Options& options, const MomentSide& before, const std::string& name_before,
         const MomentSide& after, const std::string& name_after) {
  const Difference difference = difference_of(before, after);
  print_result(options.json ? difference_json(difference, name_before, name_after)
                            : difference_text(difference, name_before, name_after));
  return kSuccess;
}

int diff_steps(const Options& options) {
  std::string error;
  const auto side = read_side(options.files[0], &error);
  if (!side) return fail(kUnreadableTrace, "diff: " + error);
  const std::vector<size_t> starts = steps_of(side->history.devices.at(side->device), side->end);
  for (const uint64_t step : options.steps)
    if (step < 1 || step > starts.size())
      return fail(kUsageError, "diff: --steps: there is no step " + std::to_string(step) + "; " +
                                   options.files[0] + " has " + std::to_string(starts.size()) +
                                   ", counted from 1");
  const auto moment = [&](uint64_t step) {
    return MomentSide{&side->history, side->device, starts[step - 1]};
  };
  const auto name = [&](uint64_t step) {
    return options.files[0] + ", where step " + std::to_string(step) + " begins";
  };
  return show(options, moment(options.steps[0]), name(options.steps[0]), moment(options.steps[1]),
              name(options.steps[1]));
}

int diff(const Options& options) {
  if (options.steps.empty() != (options.files.size() == 2))
    return fail(kUsageError, "diff: name two files, or one and --steps N,M");
  if (!options.steps.empty()) return diff_steps(options);
  std::string error;
  const auto before = read_side(options.files[0], &error);
  const auto after = before ? read_side(options.files[1], &error) : std::nullopt;
  if (!after) return fail(kUnreadableTrace, "diff: " + error);
  const std::string when = options.at == "peak" ? ", at its peak" : ", at its failure or end";
  return show(options, moment_of(*before, options.at), options.files[0] + when, moment_of(*after, options.at),
              options.files[1] + when);
}

std::function<int()> declare_diff(CLI::App& app, const Words&) {
  auto options = std::make_shared<Options>();
  app.add_option(
         "files", options->files,
         "Two memory snapshots of PyTorch's, logs of RMM's, or traces of Spillway's: the earlier one first")
      ->expected(1, 2)
      ->required();
  app.add_option("--steps", options->steps, "Two steps of one file instead, as N,M")
      ->delimiter(',')
      ->expected(2);
  app.add_option("--at", options->at, "peak (default): where each held most; end: at its failure, or its end")
      ->check(CLI::IsMember({"peak", "end"}));
  app.add_flag("--json", options->json, "The difference as data");
  return [options] { return diff(*options); };
}

}  // namespace

Command diff_command() {
  return {"diff", "Say what grew between two runs, or two steps",
          "spillway diff yesterday.pickle today.pickle", false, declare_diff};
}

}  // namespace spillway::tools
