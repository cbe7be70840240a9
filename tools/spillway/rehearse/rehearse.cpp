// `spillway rehearse`: runs an unmodified program on simulated GPUs and says whether it fits.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/explain.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/rehearse/report/page.h"
#include "tools/spillway/rehearse/report/report_json.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/report/series.h"
#include "tools/spillway/rehearse/run/child.h"
#include "tools/spillway/rehearse/run/run.h"
#include "tools/spillway/rehearse/run/search.h"

namespace spillway::tools {
namespace {

struct RehearseOptions {
  RunOptions run;
  std::string json, html, find, compare;
  bool once = false;
};

// What the series have no place for is refused rather than passed over.
std::string contradiction(const RehearseOptions& options, const Words& allocators) {
  if (allocators.empty()) return "--allocator: name one, or several to compare, such as native,spillway";
  for (const std::string& name : allocators)
    if (std::string wrong = wrong_allocator(name); !wrong.empty()) return wrong;
  std::vector<const char*> series;
  if (!options.find.empty()) series.push_back("--find");
  if (!options.compare.empty()) series.push_back("--compare");
  if (allocators.size() > 1) series.push_back("several allocators");
  if (series.size() > 1) return std::string(series[0]) + " and " + series[1] + " exclude each other";
  if (!options.compare.empty() && (options.run.machine.card || options.run.machine.capacity))
    return "--compare names the cards, so --gpu and --capacity have no place beside it";
  const bool rows = !options.find.empty() || !options.compare.empty() || allocators.size() > 1;
  if (rows && !options.html.empty())
    return std::string("--html has no place beside ") + (series.empty() ? "--find" : series[0]) +
           ", which makes many runs: rehearse one of them alone, with --html";
  if (options.find.empty() || options.run.trace.empty()) return "";
  return "--trace has no place beside --find, which makes many runs: rehearse the value that it finds alone, "
         "with --trace";
}

// Where no page is asked for, a program that ran out of memory has one all the same.
std::string write_page(const RehearseOptions& options, const Rehearsal& rehearsal,
                       const Explanation& explanation) {
  if (!options.html.empty())
    return write_output(options.html, rehearsal_page_text(options.run, rehearsal, explanation));
  leave_page_of_failure(options.run, rehearsal, explanation);
  return "";
}

int rehearse(const RehearseOptions& options) {
  const Words allocators = split_list(options.run.allocator);
  if (const std::string error = contradiction(options, allocators); !error.empty())
    return fail(kUsageError, "rehearse: " + error);
  const bool rows = !options.compare.empty() || allocators.size() > 1;  // each with a trace of its own
  const std::string no_place = check_outputs(
      {{"--json", options.json}, {"--html", options.html}, {"--trace", rows ? "" : options.run.trace}});
  if (!no_place.empty()) return fail(kUnwritable, "rehearse: " + no_place);
  if (!options.compare.empty()) return run_comparison(options.run, options.compare, options.json);
  if (const std::string missing = missing_machine(options.run.machine); !missing.empty())
    return fail(kUsageError, "rehearse: " + missing);
  if (!options.find.empty()) return run_search(options.run, options.find, options.json);
  if (allocators.size() > 1) return run_allocators(options.run, allocators, options.json);
  RunError error;
  RunOptions run = options.run;
  run.history = true;
  auto rehearsal = rehearse_once(run, &error);
  if (!rehearsal) return fail(error.code, "rehearse: " + error.text);
  look_into_history(run, &*rehearsal);
  Explanation explanation;
  const Fit fit = decide(*rehearsal);
  if (stop_signal() != 0 && (fit == Fit::kFits || fit == Fit::kNoDevice))
    return fail(128 + stop_signal(), "rehearse: stopped before the program's end, so there is no verdict");
  if (!options.once && (fit == Fit::kDoesNotFit || fit == Fit::kWentOn))
    explanation = find_what_fits(options.run, *rehearsal);
  std::fputs(report_text(options.run, *rehearsal, explanation).c_str(), stdout);
  if (!options.json.empty()) {
    const std::string wrong = write_output(options.json, report_json(options.run, *rehearsal, explanation));
    if (!wrong.empty()) return fail(kUnwritable, "rehearse: --json: " + wrong);
  }
  if (const std::string wrong = write_page(options, *rehearsal, explanation); !wrong.empty())
    return fail(kUnwritable, "rehearse: --html: " + wrong);
  if (!rehearsal->unwritten.empty()) return fail(kUnwritable, "rehearse: " + rehearsal->unwritten);
  return stop_signal() != 0 ? 128 + stop_signal() : exit_code_of(*rehearsal);
}

std::function<int()> declare_rehearse(CLI::App& app, const Words& command) {
  auto options = std::make_shared<RehearseOptions>();
  declare_run(app, command, &options->run);
  app.add_option("--json", options->json, "Write the report as JSON to this file");
  app.add_option("--html", options->html,
                 "Write the report as one HTML page, which needs no network, to this file");
  app.add_option("--find", options->find,
                 "NAME=LOW..HIGH, or NAME=LOW..HIGH:STEP: find the largest integer that fits, where the "
                 "command says {NAME}");
  app.add_option("--compare", options->compare, "CARD,CARD: a row for each card");
  app.get_option("--allocator")
      ->description(app.get_option("--allocator")->get_description() +
                    "; or several with commas between, for a row each");
  app.add_flag("--once", options->once,
               "When it does not fit, do not run it again to find out what would have fitted");
  return [options] { return rehearse(*options); };
}

}  // namespace

Command rehearse_command() {
  return {"rehearse", "Say whether an unmodified program fits a card, without one",
          "spillway rehearse --gpu a100-40gb --steps 3 -- python train.py", true, declare_rehearse};
}

}  // namespace spillway::tools
