#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/kinds_text.h"
#include "tools/spillway/report/text/last_events_text.h"
#include "tools/spillway/report/text/lines_text.h"
#include "tools/spillway/report/text/near_holes_text.h"
#include "tools/spillway/report/text/pools_text.h"
#include "tools/spillway/snapshot/report.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<uint64_t>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const Holder& holder) {
  Json json = {{"where", holder.where},
               {"caller", holder.caller},
               {"bytes", holder.bytes},
               {"blocks", holder.blocks},
               {"oldest_us", or_null(holder.oldest_us)}};
  json["growth"] =
      holder.growth ? Json{{"steps", holder.growth->steps}, {"bytes_per_step", holder.growth->bytes_per_step}}
                    : Json();
  return json;
}

Json json_of(const std::vector<Holder>& holders) {
  Json list = Json::array();
  for (const Holder& holder : holders) list.push_back(json_of(holder));
  return list;
}

// `requests_only`: what the file does not tell is null.
Json json_of(const Holdings& at, bool requests_only) {
  const auto of_the_allocator = [requests_only](uint64_t bytes) {
    return requests_only ? Json() : Json(bytes);
  };
  return {{"reserved_bytes", of_the_allocator(at.reserved)},
          {"in_use_bytes", at.in_use},
          {"rounding_bytes", of_the_allocator(at.rounding)},
          {"pending_bytes", of_the_allocator(at.pending)},
          {"idle_bytes", of_the_allocator(at.idle)},
          {"largest_idle_bytes", of_the_allocator(at.largest_idle)},
          {"elsewhere_bytes", of_the_allocator(at.elsewhere)},
          {"free_bytes", or_null(at.free)},
          {"outside_bytes", or_null(at.outside())},
          {"capacity_bytes", or_null(at.capacity)}};
}

Json failure_of(const HistoryFindings& found) {
  if (!found.failure) return {};
  return {{"asked_bytes", found.failure->bytes},
          {"device", found.device},
          {"stream", found.failure->stream},
          {"where", found.failure->where},
          {"caller", found.failure->caller}};
}

}  // namespace

LastEvents last_events_of(const SnapshotReport& report) {
  const size_t until = report.findings.failure_event.value_or(SIZE_MAX);
  return last_events(report.snapshot, report.findings.device, until, report.events);
}

Json held_json(const HistoryFindings& found, uint64_t older_bytes) {
  return {{"device", found.device},
          {"in_use_bytes", found.holdings.in_use + older_bytes},
          {"older_bytes", older_bytes},
          {"holders", json_of(found.holders)}};
}

Json peak_json(const HistoryFindings& found) {
  return {{"in_use_bytes", found.peak_bytes},
          {"is_the_failure", found.peak_is_the_failure},
          {"holders", json_of(found.at_peak)}};
}

std::string snapshot_json(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  Json json = {{"spillway_snapshot_report", 1}, {"file", report.file}, {"path", report.path}};
  json["verdict"] = found.failure ? Json{{"cause", cause_name(found.verdict.cause)},
                                         {"text", found.verdict.text + found.remark}}
                                  : Json();
  json["failure"] = failure_of(found);
  json["failures"] = found.failures;
  json["device"] = found.device;
  json["memory"] = json_of(found.holdings, report.snapshot.requests_only);
  json["holders"] = json_of(found.holders);
  json["source_lines"] = lines_json(named_lines(report));
  json["other_pools"] = pools_json(found.pools);
  json["near_holes"] = near_holes_json(found.near_holes);
  json["kinds"] = kinds_json(found.kinds);
  json["peak"] = peak_json(found);
  json["history"] = {{"events", found.events},
                     {"microseconds", found.span_us},
                     {"steps", found.steps},
                     {"contradictions", found.contradictions}};
  json["last_events"] = last_events_json(last_events_of(report));
  json.update(Json::parse(counterfactuals_json(report.fitted)));
  json["settings"] = report.snapshot.settings;
  json["incomplete"] = report.snapshot.incomplete;
  json["remark"] = report.snapshot.remark;
  json["passed_over"] = report.snapshot.passed_over;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::tools
