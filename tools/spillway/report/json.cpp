#include <nlohmann/json.hpp>

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/text/kinds_text.h"
#include "tools/spillway/report/text/last_events_text.h"
#include "tools/spillway/report/text/lines_text.h"
#include "tools/spillway/report/text/pools_text.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/snapshot/report.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json step_json(const std::optional<StepMark>& mark) {
  if (!mark) return nullptr;
  return {{"step", mark->step}, {"attempt", mark->attempt}, {"plan_hash", mark->plan_hash}};
}

Json equation_json(const Incident& incident) {
  Json terms = Json::object();
  for (const auto& [term, bytes] : incident.terms) {
    std::string name = term_name(term);
    std::replace(name.begin(), name.end(), ' ', '_');
    terms[name + "_bytes"] = bytes;
  }
  terms["residual_bytes"] = or_null(incident.residual_bytes());
  return terms;
}

Json ladder_json(const Incident& incident) {
  Json tries = Json::array();
  for (const LadderTry& tried : incident.tries) {
    tries.push_back({{"strategy", tried.strategy},
                     {"guarantee", tried.guarantee ? Json(guarantee_name(*tried.guarantee)) : Json(nullptr)},
                     {"offered_bytes", tried.offered_bytes},
                     {"gained_bytes", tried.measured_bytes},
                     {"microseconds", tried.microseconds}});
  }
  return tries;
}

Json refusals_json(const Incident& incident) {
  Json refusals = Json::array();
  for (const Refusal& refusal : incident.refusals)
    refusals.push_back({{"strategy", refusal.strategy}, {"why", refusal.why}});
  return refusals;
}

Json site_json(const std::optional<SiteName>& site) {
  if (!site) return nullptr;
  return {{"where", site->where}, {"caller", text_or_null(site->caller)}};
}

Json growth_json(const Growth* growth) {
  if (growth == nullptr) return nullptr;
  return {{"steps", growth->steps}, {"bytes_per_step", growth->bytes_per_step}};
}

Json holders_json(const ReportInput& input, const Incident& incident) {
  Json holders = Json::array();
  for (const SiteShare& holder : incident.holders)
    holders.push_back(
        {{"where", holder.site.where},
         {"caller", text_or_null(holder.site.caller)},
         {"bytes", holder.bytes},
         {"blocks", holder.blocks},
         {"growth", growth_json(&incident == input.incident ? growth_of(input, holder.site) : nullptr)}});
  return holders;
}

Json pending_json(const Incident& incident) {
  Json pending = Json::array();
  for (const PendingFrees& frees : incident.pending)
    pending.push_back({{"stream", frees.stream}, {"bytes", frees.bytes}, {"blocks", frees.blocks}});
  return pending;
}

Json neighbours_json(const Incident& incident) {
  Json neighbours = Json::array();
  for (const Neighbour& neighbour : incident.neighbours)
    neighbours.push_back({{"process", neighbour.process},
                          {"program", text_or_null(neighbour.program)},
                          {"held_bytes", neighbour.held_bytes},
                          {"cached_bytes", neighbour.cached_bytes}});
  return neighbours;
}

// The one that is shown is known more of.
Json incident_json(const ReportInput& input, const Incident& incident) {
  const bool shown = &incident == input.incident;
  const Verdict verdict = judge(incident);
  const Reason reason = shown ? reason_of(input) : Reason{cause_name(verdict.cause), verdict.text};
  return {{"incident", incident.number},
          {"cause", reason.cause},
          {"verdict", reason.text},
          {"requested_bytes", incident.requested_bytes},
          {"rounded_bytes", incident.rounded_bytes},
          {"short_bytes", incident.short_bytes},
          {"device", incident.device},
          {"stream", incident.stream},
          {"pool", or_null(incident.pool)},
          {"library", text_or_null(incident.library)},
          {"phase", text_or_null(incident.phase)},
          {"step", step_json(incident.step)},
          {"optimizer_steps", incident.optimizer_steps},
          {"asked_by", site_json(incident.asker)},
          {"clock_ns", incident.clock_ns},
          {"equation", equation_json(incident)},
          {"holders", holders_json(input, incident)},
          {"pending_frees", pending_json(incident)},
          {"other_pools", pools_json(shown && input.findings != nullptr ? input.findings->pools
                                                                        : std::vector<PoolHolding>())},
          {"other_processes", neighbours_json(incident)},
          {"ladder", ladder_json(incident)},
          {"refused", refusals_json(incident)},
          {"outcome", incident.outcome ? Json(outcome_name(*incident.outcome)) : Json(nullptr)},
          {"gained_bytes", incident.gained_bytes},
          {"microseconds", incident.microseconds}};
}

Json plan_changes_json(const Run& run) {
  Json changes = Json::array();
  for (const PlanChange& change : run.plan_changes) {
    changes.push_back({{"step", change.step},
                       {"incident", change.incident},
                       {"old_plan", change.old_plan},
                       {"new_plan", change.new_plan},
                       {"reason", text_or_null(change.reason)}});
  }
  return changes;
}

Json memory_json(const Run& run) {
  Json devices = Json::array();
  for (const auto& [device, memory] : run.memory) {
    devices.push_back({{"device", device},
                       {"peak_reserved_bytes", memory.peak_reserved_bytes},
                       {"peak_live_bytes", memory.peak_live_bytes},
                       {"limit_bytes", memory.limit_bytes}});
  }
  return devices;
}

Json strategies_json(const Run& run) {
  Json strategies = Json::object();
  for (const auto& [name, total] : run.strategies) {
    strategies[name] = {{"tried", total.tried},
                        {"useful", total.useful},
                        {"gained_bytes", total.bytes},
                        {"microseconds", total.microseconds}};
  }
  return strategies;
}

Json last_memory_json(const ReportInput& input) {
  Json devices = Json::array();
  for (const LastMemory& memory : input.last)
    devices.push_back({{"device", memory.device},
                       {"in_use_bytes", memory.in_use_bytes},
                       {"held_bytes", memory.held_bytes}});
  return devices;
}

Json slowdowns_json(const Run& run) {
  Json slowdowns = Json::object();
  for (const auto& [device, slowdown] : run.slowdowns)
    slowdowns[std::to_string(device)] = {
        {"predicted", slowdown.predicted},
        {"measured", slowdown.measured == 0 ? Json() : Json(slowdown.measured)}};
  return slowdowns;
}

Json running_json(const trace::Contents& contents) {
  if (!contents.closed && contents.writer == trace::Liveness::kUnknown) return {};
  return !contents.closed && contents.writer == trace::Liveness::kRuns;
}

Json run_json(const ReportInput& input) {
  const Run& run = input.analysis.run;
  Json failed_calls = Json::object();
  for (const auto& [device, count] : run.driver_failures) failed_calls[std::to_string(device)] = count;
  return {{"process", input.contents.process},
          {"started_ns", input.contents.started_ns},
          {"ended", input.contents.closed},
          {"running", running_json(input.contents)},
          {"last_memory", last_memory_json(input)},
          {"failures", input.analysis.incidents.size()},
          {"rescued", run.granted},
          {"unwound", run.unwound},
          {"gave_up", run.gave_up},
          {"undecided", run.undecided},
          {"last_step_begun", step_json(run.last_begun)},
          {"last_step_ended", step_json(run.last_ended)},
          {"steps_ended", run.steps_ended},
          {"optimizer_steps", run.optimizer_steps},
          {"tokens", run.tokens},
          {"memory", memory_json(run)},
          {"failed_driver_calls", failed_calls},
          {"slowdowns", slowdowns_json(run)},
          {"plan_changes", plan_changes_json(run)},
          {"strategies", strategies_json(run)}};
}

Json at_last_json(const ReportInput& input) {
  if (input.at_last == nullptr) return nullptr;
  Json held = held_json(*input.at_last, older_bytes(input));
  held["told_ns"] = input.told_ns ? Json(*input.told_ns) : Json();
  held["estimated"] = is_sampled(input);
  return held;
}

}  // namespace

std::string report_json(const ReportInput& input) {
  const trace::Contents& contents = input.contents;
  Json incidents = Json::array();
  for (const Incident& incident : input.analysis.incidents)
    incidents.push_back(incident_json(input, incident));
  Json report = {{"trace", input.path},
                 {"shown_incident", input.incident != nullptr ? Json(input.incident->number) : Json(nullptr)},
                 {"incidents", incidents},
                 {"source_lines", lines_json(named_lines(input))},
                 {"run", run_json(input)},
                 {"last_events", last_events_json(input.last_events)},
                 {"completeness",
                  {{"whole", contents.incomplete.empty()},
                   {"incomplete", text_or_null(contents.incomplete)},
                   {"overwritten", contents.overwritten},
                   {"overwritten_rare", contents.overwritten_rare},
                   {"dropped", contents.dropped},
                   {"torn", contents.torn}}},
                 {"settings", contents.settings}};
  report.update(Json::parse(counterfactuals_json(input.fitted)));
  report["at_last"] = at_last_json(input);
  report["kinds"] = input.findings != nullptr ? kinds_json(input.findings->kinds) : Json::array();
  report["peak"] = input.findings != nullptr ? peak_json(*input.findings) : Json();
  // Names come from the traced program: what is no UTF-8 is replaced, not thrown at.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::tools
