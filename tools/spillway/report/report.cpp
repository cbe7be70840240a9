// `spillway report`: what a trace tells.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/input_file.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/perfetto/write.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/report/ranks/rank_reports.h"
#include "tools/spillway/report/render.h"
#include "tools/spillway/report/trace/read_history.h"
#include "tools/spillway/report/trace/trace_history.h"
#include "tools/spillway/report/trace/trace_report.h"
#include "tools/spillway/rmm/judge.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/snapshot/write.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

struct Options {
  std::string path, capacity, html, pickle, perfetto;
  std::vector<std::string> more;  // reports of other ranks
  std::vector<std::pair<const char*, std::string>> outputs() const {
    return {{"--html", html}, {"--pickle", pickle}, {"--perfetto", perfetto}};
  }
  bool json = false;
  int64_t incident = 0, events = 20;
  CLI::Option* incident_given = nullptr;
};

std::string known_incidents(const Analysis& analysis) {
  if (analysis.incidents.empty()) return "the trace has none";
  return "the trace has " + std::to_string(analysis.incidents.front().number) + " to " +
         std::to_string(analysis.incidents.back().number);
}

int write_page(const Options& options, const std::string& page) {
  const std::string wrong = write_output(options.html, page);
  if (!wrong.empty()) return fail(kUnwritable, "report: --html: " + wrong);
  std::printf("The report is a page now: %s (%s). Open it in a browser.\n", options.html.c_str(),
              size_text(page.size()).c_str());
  return kSuccess;
}

// `ladder`: of a trace; null of another file.
int write_perfetto(const Options& options, const MemoryHistory& history, const Analysis* ladder) {
  const PerfettoTrace trace = perfetto_of(history, ladder);
  const std::string wrong = write_output(options.perfetto, trace.bytes);
  if (!wrong.empty()) return fail(kUnwritable, "report: --perfetto: " + wrong);
  std::printf(
      "The history is a trace of Perfetto's form now: %s (%s; %llu of %s drawn). "
      "https://ui.perfetto.dev shows it.\n",
      options.perfetto.c_str(), size_text(trace.bytes.size()).c_str(),
      static_cast<unsigned long long>(trace.blocks_drawn),
      count_text(trace.blocks, "block is", "blocks are").c_str());
  return kSuccess;
}

int write_pickle(const Options& options, const MemoryHistory& history) {
  const std::string wrong = write_output(options.pickle, snapshot_of(history));
  if (!wrong.empty()) return fail(kUnwritable, "report: --pickle: " + wrong);
  std::printf(
      "The history is a memory snapshot of PyTorch's form now: %s. https://pytorch.org/memory_viz shows "
      "it.\n",
      options.pickle.c_str());
  return kSuccess;
}

// Of a file that tells of requests and blocks, but not of Spillway's decisions.
int report_history(const Options& options, HistoryFile file) {
  std::optional<uint64_t> capacity;
  if (!options.capacity.empty()) {
    capacity = parse_size(options.capacity);
    if (!capacity)
      return fail(kUsageError,
                  "report: --capacity: '" + options.capacity + "' is no size: write " + kSizesAccepted);
  }
  if (options.incident_given->count() > 0)
    return fail(kUsageError, std::string("report: --incident: ") + history_file_name(file) +
                                 "s have no incidents; the last failure is shown");
  std::string error;
  const auto history = read_history(options.path, &error);
  if (!history) return fail(kUnreadableTrace, "report: " + error);
  auto findings = look_into(*history, capacity);
  if (!findings)
    return fail(kUnreadableTrace, "report: " + options.path + ": the " + history_file_name(file) +
                                      " holds no memory and no history");
  if (!options.pickle.empty()) return write_pickle(options, *history);
  if (!options.perfetto.empty()) return write_perfetto(options, *history, nullptr);
  if (history->requests_only) judge_by_requests(&*findings);
  const Counterfactuals fitted = what_would_have_fitted(*history, *findings);
  const SnapshotReport shown{options.path,
                             *history,
                             *findings,
                             &fitted,
                             history_file_name(file),
                             static_cast<uint64_t>(options.events)};
  if (!options.html.empty()) return write_page(options, snapshot_page(shown));
  print_result(options.json ? snapshot_json(shown) : snapshot_text(shown));
  return kSuccess;
}

bool has_allocations(const MemoryHistory& history) {
  return std::ranges::any_of(history.devices, [](const auto& device) {
    return std::ranges::find(device.second.events, Action::kAllocate, &HistoryEvent::action) !=
           device.second.events.end();
  });
}

int convert_trace(const Options& options, const TraceReport& trace) {
  const MemoryHistory history = history_of(trace.contents());
  if (!has_allocations(history))
    return fail(kUnreadableTrace,
                "report: " + options.path + ": holds no history of requests" + kWhoWritesOne);
  return options.pickle.empty() ? write_perfetto(options, history, &trace.analysis())
                                : write_pickle(options, history);
}

int report_trace(const Options& options, TraceReport* trace) {
  if (!options.pickle.empty() || !options.perfetto.empty()) return convert_trace(options, *trace);
  if (options.incident_given->count() > 0) {
    trace->show(trace->analysis().find(static_cast<uint64_t>(options.incident)));
    if (trace->incident() == nullptr) {
      return fail(kUsageError, "report: no incident " + std::to_string(options.incident) + "; " +
                                   known_incidents(trace->analysis()));
    }
  }
  trace->look_back(static_cast<uint64_t>(options.events));
  if (!options.html.empty()) return write_page(options, trace->page());
  const ReportInput input = trace->input();
  print_result(options.json ? report_json(input) : report_text(input));
  return kSuccess;
}

// Of a folder, what rank 0 has left.
std::vector<std::string> files_read(const Options& options) {
  std::vector<std::string> files = {options.path, options.path + "/report.json"};
  for (const std::string& path : options.more) files.push_back(path), files.push_back(path + "/report.json");
  return files;
}

// Of a training of several ranks.
int report_ranks(const Options& options) {
  std::vector<std::string> paths = {options.path};
  paths.insert(paths.end(), options.more.begin(), options.more.end());
  const bool asks_more = options.json || !options.pickle.empty() || !options.perfetto.empty() ||
                         !options.capacity.empty() || options.incident_given->count() > 0;
  if (asks_more)
    return fail(kUsageError,
                "report: the reports of a training are told as text or a page: each report.json is its data");
  std::string error;
  const auto reports = read_rank_reports(paths, &error);
  if (!reports) return fail(kUnreadableTrace, "report: " + error);
  if (!options.html.empty())
    return write_page(options, ranks_page(options.path, rank_reports_json(*reports)));
  print_result(rank_reports_text(*reports));
  return kSuccess;
}

int report(const Options& options) {
  if (options.path.empty())
    return fail(
        kUsageError,
        "report: name the file: spillway report TRACE, a memory snapshot of PyTorch's, or a log of RMM's");
  if (const std::string wrong = not_a_file(options.path); !wrong.empty())
    return fail(kUnreadableTrace, "report: " + wrong);
  if (const std::string wrong = check_outputs(options.outputs()); !wrong.empty())
    return fail(kUnwritable, "report: " + wrong);
  if (const std::string wrong = overwritten_input(files_read(options), options.outputs()); !wrong.empty())
    return fail(kUsageError, "report: " + wrong);
  if (!options.more.empty() || is_run_report(options.path)) return report_ranks(options);
  const HistoryFile file = history_file(options.path);
  if (file == HistoryFile::kSnapshot && !options.pickle.empty())
    return fail(kUsageError, "report: --pickle: " + options.path + " is a snapshot of PyTorch's already");
  if (file != HistoryFile::kTrace) return report_history(options, file);
  if (!options.capacity.empty())
    return fail(kUsageError, "report: --capacity is for memory snapshots and logs: a trace knows its card");
  std::string error;
  const auto trace = read_trace_report(options.path, &error);
  if (trace == nullptr) return fail(kUnreadableTrace, "report: " + error);
  return report_trace(options, trace.get());
}

// CLI11's own check names a bound of 300 digits.
const CLI::Validator kWholeNumber(
    [](const std::string& text) {
      const bool whole =
          !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == text.npos;
      return whole ? std::string() : "write a whole number, 0 or more, not '" + text + "'";
    },
    "NUMBER");

std::function<int()> declare_report(CLI::App& app, const Words&) {
  auto options = std::make_shared<Options>();
  app.add_option("trace", options->path,
                 "Trace file, as SPILLWAY_TRACE named it, a memory snapshot of PyTorch's, a log of RMM's, or "
                 "the folder of a run of spillway-train");
  app.add_option("more", options->more, "Reports of other ranks of that run (report.json, or their folders)");
  app.add_option("--capacity", options->capacity,
                 "Of a snapshot's card or a log's pool, such as 24GiB: shows what was outside");
  const auto json = app.add_flag("--json", options->json, "The report as data");
  const auto page = app.add_option("--html", options->html,
                                   "Write the report as one HTML page, which needs no network, to this file")
                        ->type_name("FILE")
                        ->excludes(json);
  const auto pickle =
      app.add_option(
             "--pickle", options->pickle,
             "Write a trace or a log as a memory snapshot, for PyTorch's viewer (memory_viz), to this file")
          ->excludes(page)
          ->type_name("FILE")
          ->excludes(json);
  app.add_option("--perfetto", options->perfetto,
                 "Write the history as a trace of Perfetto's form (protobuf), to this file")
      ->excludes(page)
      ->excludes(pickle)
      ->type_name("FILE")
      ->excludes(json);
  options->incident_given = app.add_option("--incident", options->incident,
                                           "The failure to show; otherwise the last that was not rescued")
                                ->check(kWholeNumber);
  app.add_option("--events", options->events, "How many lines to tell the last events in")
      ->capture_default_str()
      ->check(kWholeNumber);
  return [options] { return report(*options); };
}

}  // namespace

Command report_command() {
  return {"report", "Say what a trace, a memory snapshot of PyTorch's, or a log of RMM's tells",
          "spillway report run.trace", false, declare_report};
}

}  // namespace spillway::tools
