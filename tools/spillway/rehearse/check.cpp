// `spillway check`: a rehearsal as a test, for a project's own continuous integration.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "allocator/request/verdict.h"
#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/findings.h"
#include "tools/spillway/rehearse/judge/judge.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/rehearse/report/page.h"
#include "tools/spillway/rehearse/report/report_json.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/run/baseline.h"
#include "tools/spillway/rehearse/run/child.h"
#include "tools/spillway/rehearse/run/run.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kLeastBudget = uint64_t{2} << 20;  // a card has pages of so much: less is a unit forgotten

struct CheckOptions {
  RunOptions run;
  std::string budget, baseline, tolerance = "2%", junit, markdown, json, html;
  bool update = false;
};

// "" or that the baseline was taken under other settings, as far as those of this run are known.
std::string other_settings(const CheckOptions& options, const Rules& rules, const Settings& here) {
  if (!rules.before) return "";
  const std::string text = differences(rules.before->settings, here);
  return text.empty() ? ""
                      : "--baseline: '" + options.baseline + "' was taken under other settings (" + text +
                            "): give those, or write it anew, with --update-baseline";
}

std::string read_rules(const CheckOptions& options, Rules* rules) {
  if (std::string wrong = wrong_allocator(options.run.allocator); !wrong.empty()) return wrong;
  if (std::string missing = missing_machine(options.run.machine); !missing.empty()) return missing;
  if (options.update && options.baseline.empty()) return "--update-baseline needs the file: --baseline FILE";
  if (options.budget.empty() && options.baseline.empty()) return "give a --budget, a --baseline, or both";
  if (!options.budget.empty()) {
    rules->budget = parse_size(options.budget);
    if (!rules->budget || *rules->budget < kLeastBudget)
      return "--budget is '" + options.budget + "': write " + kSizesAccepted + ", at least 2MiB";
  }
  const auto tolerance = parse_tolerance(options.tolerance);
  if (!tolerance)
    return "--tolerance is '" + options.tolerance + "': write a share, such as 2%, or a size, such as 64MiB";
  rules->tolerance = *tolerance;
  if (options.baseline.empty() || options.update) return "";
  std::string error;
  rules->before = read_baseline(options.baseline, &error);
  if (!error.empty()) return "--baseline: " + error;
  return other_settings(options, *rules, settings_asked(options.run));
}

std::string page_text(const CheckOptions& options, const Rehearsal& rehearsal) {
  return options.html.empty() ? "" : rehearsal_page_text(options.run, rehearsal, {});
}

std::string write_results(const CheckOptions& options, const Rehearsal& rehearsal,
                          const std::vector<Finding>& findings) {
  struct Output {
    const char* option;
    const std::string& path;
    std::string text;
  };
  const Output outputs[] = {{"--junit", options.junit, findings_junit(findings, rehearsal.seconds)},
                            {"--markdown", options.markdown, findings_markdown(findings)},
                            {"--json", options.json, report_json(options.run, rehearsal, {})},
                            {"--html", options.html, page_text(options, rehearsal)}};
  for (const auto& [option, path, text] : outputs) {
    if (path.empty()) continue;
    if (const std::string wrong = write_output(path, text); !wrong.empty())
      return std::string(option) + ": " + wrong;
  }
  return "";
}

// What is no measure of the program's need, or more than it may need, is nothing to compare others with.
std::string update_baseline(const CheckOptions& options, const Rehearsal& rehearsal,
                            const std::vector<Finding>& findings) {
  if (!options.update) return "";
  if (!none_failed(findings)) {
    std::printf("baseline '%s' is not written: it is of a program that fits and keeps its budget\n",
                options.baseline.c_str());
    return "";
  }
  const Baseline baseline = baseline_of(options.run, rehearsal);
  if (std::string wrong = write_output(options.baseline, baseline_text(baseline)); !wrong.empty())
    return "--baseline: " + wrong;
  std::printf("baseline '%s' is written\n", options.baseline.c_str());
  for (const auto& [name, device] : baseline.devices)
    std::printf("  %s: whole card %s, allocated %s\n", name.c_str(), size_text(device.peak).c_str(),
                size_text(device.allocated).c_str());
  return "";
}

int check(const CheckOptions& options) {
  Rules rules;
  if (const std::string wrong = read_rules(options, &rules); !wrong.empty())
    return fail(kUsageError, "check: " + wrong);
  const std::string no_place = check_outputs({{"--junit", options.junit},
                                              {"--markdown", options.markdown},
                                              {"--json", options.json},
                                              {"--html", options.html},
                                              {"--trace", options.run.trace},
                                              {"--baseline", options.update ? options.baseline : ""}});
  if (!no_place.empty()) return fail(kUnwritable, "check: " + no_place);
  RunError error;
  RunOptions run = options.run;
  run.history = true;
  auto rehearsal = rehearse_once(run, &error);
  if (!rehearsal) return fail(error.code, "check: " + error.text);
  look_into_history(run, &*rehearsal);
  if (stop_signal() != 0) return fail(128 + stop_signal(), "check: stopped before the program's end");
  const bool fits = decide(*rehearsal) == Fit::kFits;
  // A run that does not fit has its own verdict, whatever it was to be compared with.
  if (const std::string other = other_settings(options, rules, settings_of(options.run, *rehearsal));
      fits && !other.empty())
    return fail(kUsageError, "check: " + other);
  const std::vector<Finding> findings = judge(options.run, rules, *rehearsal);
  if (!fits) std::fputs((report_text(options.run, *rehearsal, {}) + "\n").c_str(), stdout);
  std::fputs(findings_text(findings).c_str(), stdout);
  if (fits) std::fputs(card_bars_text(*rehearsal).c_str(), stdout);
  if (fits) std::fputs(condition_text(options.run, *rehearsal).c_str(), stdout);
  std::string wrong = write_results(options, *rehearsal, findings);
  if (wrong.empty()) wrong = update_baseline(options, *rehearsal, findings);
  if (wrong.empty()) wrong = rehearsal->unwritten;
  if (!wrong.empty()) return fail(kUnwritable, "check: " + wrong);
  if (!fits) return exit_code_of(*rehearsal);
  return none_failed(findings) ? kSuccess : kOverBudget;
}

std::function<int()> declare_check(CLI::App& app, const Words& command) {
  auto options = std::make_shared<CheckOptions>();
  declare_run(app, command, &options->run);
  app.add_option("--budget", options->budget,
                 std::string("The most that the program may take of each card: ") + kSizesAccepted);
  app.add_option("--baseline", options->baseline, "File with the memory of an earlier run, to compare with");
  app.add_option("--tolerance", options->tolerance,
                 "What the peak may grow over the baseline's: 2%, 64MiB or 0");
  app.add_flag("--update-baseline", options->update,
               "Write this run to the --baseline file instead of comparing");
  app.add_option("--junit", options->junit, "Write the results as JUnit's XML to this file");
  app.add_option("--markdown", options->markdown, "Write the results as Markdown to this file");
  app.add_option("--json", options->json, "Write the rehearsal as JSON to this file");
  app.add_option("--html", options->html,
                 "Write the rehearsal as one HTML page, which needs no network, to this file");
  return [options] { return check(*options); };
}

}  // namespace

Command check_command() {
  return {"check", "Fail when a program's memory passes a budget, or a baseline's",
          "spillway check --gpu l4-24gb --budget 22GiB --baseline memory.json --steps 3 -- python train.py",
          true, declare_check};
}

}  // namespace spillway::tools
