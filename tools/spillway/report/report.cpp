// `spillway report`: what a trace tells.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/report/render.h"

namespace spillway::tools {
namespace {

struct Options {
  std::string path;
  bool json = false;
  int64_t incident = 0, events = 20;
  CLI::Option* incident_given = nullptr;
};

std::string known_incidents(const Analysis& analysis) {
  if (analysis.incidents.empty()) return "the trace has none";
  return "the trace has " + std::to_string(analysis.incidents.front().number) + " to " +
         std::to_string(analysis.incidents.back().number);
}

int report(const Options& options) {
  if (options.path.empty()) return fail(kUsageError, "report: name the trace file: spillway report TRACE");
  trace::Contents contents;
  std::string error;
  if (!trace::read(options.path, &contents, &error)) return fail(kUnreadableTrace, "report: " + error);
  const Analysis analysis = analyse(contents);
  const Incident* incident = analysis.foremost();
  if (options.incident_given->count() > 0) {
    incident = analysis.find(static_cast<uint64_t>(options.incident));
    if (incident == nullptr) {
      return fail(kUsageError, "report: no incident " + std::to_string(options.incident) + "; " +
                                   known_incidents(analysis));
    }
  }
  const ReportInput input{options.path, contents, analysis, incident, static_cast<uint64_t>(options.events)};
  std::fputs((options.json ? report_json(input) : report_text(input)).c_str(), stdout);
  return kSuccess;
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
  app.add_option("trace", options->path, "Trace file, as SPILLWAY_TRACE named it");
  app.add_flag("--json", options->json, "The report as data");
  options->incident_given = app.add_option("--incident", options->incident,
                                           "The failure to show; otherwise the last that was not rescued")
                                ->check(kWholeNumber);
  app.add_option("--events", options->events, "How many of the last events to show")
      ->capture_default_str()
      ->check(kWholeNumber);
  return [options] { return report(*options); };
}

}  // namespace

Command report_command() {
  return {"report", "Say what a trace tells", "spillway report run.trace", false, declare_report};
}

}  // namespace spillway::tools
