// The run as a whole, its last events, and how far the trace can be relied on.
#include <algorithm>
#include <cmath>

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/text/last_events_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kLinesShown = 20;  // of what a run may have hundreds of

std::string counted(uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string failures_text(const Analysis& analysis) {
  const Run& run = analysis.run;
  std::string text = counted(analysis.incidents.size(), "allocation failure") + ": " +
                     std::to_string(run.granted) + " rescued in place, " + std::to_string(run.unwound) +
                     " done again with another plan, " + std::to_string(run.gave_up) + " not rescued";
  if (run.undecided > 0) text += ", " + std::to_string(run.undecided) + " without an outcome";
  return text;
}

std::string steps_text(const Run& run) {
  if (!run.last_begun && run.optimizer_steps > 0)
    return counted(run.optimizer_steps, "optimizer step") + " began";
  if (!run.last_begun) return "no step was marked";
  std::string text = "reached step " + std::to_string(run.last_begun->step);
  if (run.last_begun->attempt != 0) text += ", attempt " + std::to_string(run.last_begun->attempt);
  text += "; " + counted(run.steps_ended, "step") + " ended";
  if (run.tokens > 0) text += ", " + std::to_string(run.tokens) + " tokens";
  return text;
}

std::string memory_text(uint8_t device, const DeviceMemory& memory) {
  std::string text = "device " + std::to_string(device) + ": peak " + size_text(memory.peak_reserved_bytes) +
                     " reserved, " + size_text(memory.peak_live_bytes) + " live";
  if (memory.limit_bytes == 0) return text + ", no limit";
  const long percent = std::lround(100.0 * static_cast<double>(memory.peak_reserved_bytes) /
                                   static_cast<double>(memory.limit_bytes));
  return text + ", limit " + size_text(memory.limit_bytes) + " (" + std::to_string(percent) + "%)";
}

std::string legacy_ipc_text(const trace::Contents& contents) {
  const auto found = contents.settings.find("legacy_ipc");
  if (found == contents.settings.end()) return "";
  return "  SPILLWAY_LEGACY_IPC=" + found->second + ": " +
         (found->second == "all" ? "every tensor lies" : "tensors of CUDA graphs and MemPools lie") +
         " in allocations of the driver's, which are neither stitched nor moved to another tier\n";
}

std::string strategies_text(const Run& run) {
  if (run.strategies.empty()) return "";
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"strategy", "tried", "useful", "gained", "time"});
  for (const auto& [name, total] : run.strategies) {
    table.add({name, std::to_string(total.tried), std::to_string(total.useful), size_text(total.bytes),
               duration_text(total.microseconds)});
  }
  return "\nStrategies\n" + table.text("  ");
}

std::string step_column(const Incident& incident) {
  if (incident.step) return std::to_string(incident.step->step);
  return incident.optimizer_steps > 0 ? "after " + std::to_string(incident.optimizer_steps) : "?";
}

// The newest incidents, one a line.
std::string incidents_text(const Analysis& analysis) {
  if (analysis.incidents.size() < 2) return "";
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  table.add({"incident", "step", "asked", "short", "outcome", "verdict"});
  const size_t count = analysis.incidents.size();
  for (size_t i = count - std::min(count, kLinesShown); i < count; ++i) {
    const Incident& incident = analysis.incidents[i];
    table.add({std::to_string(incident.number), step_column(incident), size_text(incident.requested_bytes),
               size_text(incident.short_bytes), incident.outcome ? outcome_text(*incident.outcome) : "none",
               cause_name(judge(incident).cause)});
  }
  std::string text = "\nFailures\n" + table.text("  ");
  if (count > kLinesShown) text += "  (the last " + std::to_string(kLinesShown) + "; --json has all)\n";
  return text;
}

std::string plan_changes_text(const Run& run) {
  std::string text;
  const size_t count = run.plan_changes.size();
  const size_t hidden = count - std::min(count, kLinesShown);
  if (hidden > 0) text += "  " + counted(hidden, "earlier plan change") + " (--json has all)\n";
  for (size_t i = hidden; i < count; ++i) {
    const PlanChange& change = run.plan_changes[i];
    text += "  plan changed at step " + std::to_string(change.step);
    if (change.incident != 0) text += " for incident " + std::to_string(change.incident);
    text += ": " + (change.reason.empty() ? "no reason given" : change.reason) + "\n";
  }
  return text;
}

// Whatever incident is shown, a reader must know that the numbers of some are not all.
std::string unclosed_text(const Analysis& analysis) {
  std::vector<uint64_t> numbers;
  for (const Incident& incident : analysis.incidents)
    if (incident.residual_bytes().value_or(0) != 0) numbers.push_back(incident.number);
  if (numbers.empty()) return "";
  return "  NOT ALL IS TOLD: of " + count_text(numbers.size(), "incident", "incidents") + ", first of " +
         std::to_string(numbers.front()) + ", the terms do not add up to the limit\n";
}

}  // namespace

std::string ending_text(const trace::Contents& contents) {
  if (contents.closed) return "the process exited";
  if (contents.writer == trace::Liveness::kRuns) return "the process still runs";
  return contents.writer == trace::Liveness::kEnded ? "the process was cut off"
                                                    : "the process was cut off, or still runs";
}

std::string no_failure_text(const trace::Contents& contents) {
  const bool has_all = contents.incomplete.empty() && contents.overwritten_rare == 0;
  return has_all ? "No allocation failed." : "No allocation failed in what is left of the trace.";
}

std::string cut_off_text(const ReportInput& input) {
  std::string text;
  if (!input.contents.incomplete.empty())
    text = "NOT WHOLE: the file ends early, or is damaged; see the last lines.\n";
  const trace::Contents& contents = input.contents;
  if (contents.closed || contents.writer == trace::Liveness::kRuns) return text;
  text +=
      contents.writer == trace::Liveness::kEnded
          ? "The process ended without closing the trace: it was killed, or crashed, or left by _exit() as "
            "forked workers do."
          : "The process has not closed the trace: it was killed, or crashed, or left by _exit() as forked "
            "workers do, or it still runs in another container or on another machine.";
  for (const LastMemory& memory : input.last)
    text += " Of device " + std::to_string(memory.device) + " it had " + size_text(memory.in_use_bytes) +
            " in use at last, and held " + size_text(memory.held_bytes) + ".";
  return text + "\n";
}

uint64_t older_bytes(const ReportInput& input) {
  if (input.told_ns) return 0;
  const auto of_device = std::ranges::find(input.last, input.at_last->device, &LastMemory::device);
  return of_device == input.last.end() ? 0 : of_device->older_bytes;
}

std::string run_text(const ReportInput& input) {
  const Run& run = input.analysis.run;
  std::string text = "The run (process " + std::to_string(input.contents.process) + ")\n";
  text += "  " + failures_text(input.analysis) + "\n";
  text += "  " + steps_text(run) + "; " + ending_text(input.contents) + "\n";
  for (const auto& [device, memory] : run.memory) text += "  " + memory_text(device, memory) + "\n";
  for (const auto& [device, count] : run.driver_failures) {
    text += "  device " + std::to_string(device) + ": " + counted(count, "failed driver call") + "\n";
  }
  for (const auto& [device, slowdown] : run.slowdowns)
    text += "  device " + std::to_string(device) + ": memory in other tiers made steps " +
            slowdown_text(slowdown) + "\n";
  text += legacy_ipc_text(input.contents);
  return text + plan_changes_text(run) + strategies_text(run) + incidents_text(input.analysis);
}

std::string events_text(const ReportInput& input) {
  const std::string text = last_events_text(input.last_events);
  return text.empty() ? "" : text + "\n";
}

std::string completeness_text(const ReportInput& input) {
  const trace::Contents& contents = input.contents;
  std::string text = "The trace\n  ";
  text += contents.incomplete.empty() ? "whole file" : "NOT WHOLE: " + contents.incomplete;
  text += "\n  " + std::to_string(contents.overwritten) + " older records overwritten (" +
          (contents.overwritten_rare == 0
               ? "no failure or step among them"
               : std::to_string(contents.overwritten_rare) + " failures, steps and the like") +
          "), " + std::to_string(contents.dropped) + " dropped, " + std::to_string(contents.torn) + " torn\n";
  text += unclosed_text(input.analysis);
  for (const auto& [key, value] : contents.settings)
    text.append("  ").append(key).append(" = ").append(value).append("\n");
  return text;
}

}  // namespace spillway::tools
