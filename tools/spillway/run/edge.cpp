#include "tools/spillway/run/edge.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "tools/spillway/report/verdict.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Term;

constexpr size_t kMostTraces = 8;  // of a job with many ranks, which are alike

struct Demand {
  uint64_t wanted = 0, limit = 0;
  // Of two the closer to the edge.
  double share() const { return limit == 0 ? 0 : static_cast<double>(wanted) / static_cast<double>(limit); }
};

void take(const Demand& demand, Demand* most) {
  if (demand.share() > most->share()) *most = demand;
}

// What was in use, wherever it lay, and what was asked beside it.
Demand demand_of(const Incident& incident) {
  const auto bytes = [&](Term term) { return incident.term(term).value_or(0); };
  // Of another library's call it is not known what of the rest was in use.
  if (is_driver_call(incident) || !incident.term(Term::kLive) || !incident.term(Term::kLimit)) return {};
  return {bytes(Term::kLive) + bytes(Term::kRounding) + bytes(Term::kSpilled) + incident.requested_bytes,
          bytes(Term::kLimit)};
}

Demand demand_of(const std::string& trace, StepSlowdown* slowdown) {
  trace::Contents contents;
  std::string unread;
  Demand most;
  if (!trace::read(trace, &contents, &unread)) return most;
  const Analysis analysis = analyse(contents);
  for (const auto& [device, told] : analysis.run.slowdowns)
    if (told.most() > slowdown->most()) *slowdown = told;
  for (const auto& [device, memory] : analysis.run.memory)
    take({memory.peak_live_bytes, memory.limit_bytes}, &most);
  for (const Incident& incident : analysis.incidents) take(demand_of(incident), &most);
  return most;
}

Demand demand_of(const RunRecord& run) {
  return {run.wanted_bytes, run.limit_bytes};
}

std::string demand_text(const RunRecord& run) {
  const long percent = std::lround(demand_of(run).share() * 100);
  return size_text(run.wanted_bytes) + " of " + size_text(run.limit_bytes) + " (" + std::to_string(percent) +
         "%)";
}

std::string day_text(int64_t when) {
  const std::time_t seconds = when;
  std::tm parts{};
  char text[32] = "";
  if (::localtime_r(&seconds, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

bool is_known(const RunRecord& run) {
  return run.wanted_bytes != 0 && run.limit_bytes != 0;
}

std::string failures_text(const RunRecord& run) {
  return run.failures == 0 ? "no failure" : count_text(run.failures, "failure", "failures");
}

std::string compared(const RunRecord& now, const RunRecord& before) {
  const std::string run = "the run of " + day_text(before.when);
  if (!is_known(now) || !is_known(before)) return run + " met " + failures_text(before);
  constexpr double kSame = 0.005;  // of what the device can give
  const double closer = demand_of(now).share() - demand_of(before).share();
  const char* text = closer > kSame    ? " was farther from the edge: "
                     : closer < -kSame ? " was closer to the edge: "
                                       : " was as close: ";
  return run + text + demand_text(before) + ", " + failures_text(before);
}

}  // namespace

RunRecord measure_run(const RunTotals& totals, StepSlowdown* slowdown) {
  RunRecord run;
  run.when = std::time(nullptr);
  run.failures = totals.incidents.failures;
  run.rescued = totals.incidents.rescued;
  Demand most;
  size_t read = 0;
  for (const auto* traces : {&totals.traces, &totals.clean_traces})
    for (const std::string& trace : *traces)
      if (read++ < kMostTraces) take(demand_of(trace, slowdown), &most);
  run.wanted_bytes = most.wanted;
  run.limit_bytes = most.limit;
  return run;
}

std::string edge_line(const RunTotals& totals, const RunRecord& now, const std::optional<RunRecord>& before) {
  if (totals.incidents.rescued == 0 || totals.incidents.gave_up != 0) return "";
  std::string line = is_known(now) ? "at its peak the program wanted " + demand_text(now) : "";
  if (before) line += (line.empty() ? "" : "; ") + compared(now, *before);
  return line;
}

}  // namespace spillway::tools
