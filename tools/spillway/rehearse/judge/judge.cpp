#include "tools/spillway/rehearse/judge/judge.h"

#include <algorithm>

#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/report/report_text.h"

namespace spillway::tools {
namespace {

Finding that_it_fits(const RunOptions& options, const Rehearsal& rehearsal) {
  const bool fits = decide(rehearsal) == Fit::kFits;
  const bool conditional = !fits_if(options, rehearsal).empty();
  std::string text = verdict_text(options, rehearsal);
  if (conditional && values_of(options, rehearsal) != "compute")
    text += " (--values compute runs with true values, at small sizes)";
  if (const std::string why = failure_line(rehearsal); !why.empty()) text += ": " + why;
  const Judged judged = !fits ? Judged::kFailed : conditional ? Judged::kPassedIf : Judged::kPassed;
  return {"the program fits the card", judged, text, {}};
}

void compare(const Rules& rules, const std::map<std::string, DeviceBaseline>& used,
             std::vector<Finding>* findings) {
  for (const auto& [name, now] : used) {
    if (rules.budget) findings->push_back(within_budget(name, now.peak, *rules.budget));
    if (!rules.before) continue;
    const auto before = rules.before->devices.find(name);
    findings->push_back(within_baseline(
        name, now, before == rules.before->devices.end() ? nullptr : &before->second, rules.tolerance));
  }
  if (!rules.before) return;
  for (const auto& [name, before] : rules.before->devices)
    if (!used.contains(name)) findings->push_back(no_longer_used(name));
}

void leave_open(const Rules& rules, const std::map<std::string, DeviceBaseline>& used,
                std::vector<Finding>* findings) {
  if (rules.budget)
    for (const auto& [name, now] : used) findings->push_back(budget_not_judged(name));
  if (rules.before)
    for (const auto& [name, before] : rules.before->devices) findings->push_back(baseline_not_judged(name));
}

}  // namespace

std::vector<Finding> judge(const RunOptions& options, const Rules& rules, const Rehearsal& rehearsal) {
  std::vector<Finding> findings{that_it_fits(options, rehearsal)};
  const auto used = baseline_of(options, rehearsal).devices;
  (decide(rehearsal) == Fit::kFits ? compare : leave_open)(rules, used, &findings);
  return findings;
}

bool none_failed(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.judged == Judged::kFailed; });
}

}  // namespace spillway::tools
