#include "tools/spillway/page/page.h"

#include <nlohmann/json.hpp>

#include "tools/spillway/page/history_json.h"

// The assembled page (template.S).
extern "C" const char spillway_page_start[], spillway_page_end[];

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDataMark = "@SPILLWAY_PAGE_DATA@";

std::string join(const Json& data) {
  const std::string_view page(spillway_page_start,
                              static_cast<size_t>(spillway_page_end - spillway_page_start));
  const size_t at = page.find(kDataMark);
  std::string text(page.substr(0, at));
  // Names come from the program that was recorded: what is no UTF-8 is replaced, not thrown at.
  text += inert_json(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  text += page.substr(at + kDataMark.size());
  return text;
}

Json snapshot_terms() {
  Json terms = Json::array();
  for (const HoldingTerm& term : kHoldingTerms)
    terms.push_back({{"key", term.key}, {"name", term.name}, {"meaning", term.meaning}});
  return terms;
}

Json trace_terms(const Incident* incident) {
  Json terms = Json::array();
  if (incident == nullptr) return terms;
  for (const trace::Term term : kSummands) {
    if (is_optional(term) && !incident->term(term)) continue;
    if (const char* meaning = term_meaning(*incident, term))
      terms.push_back({{"key", term_name(term)}, {"name", term_name(term)}, {"meaning", meaning}});
  }
  return terms;
}

Json start(const char* kind, const std::string& path, Json report) {
  return {{"kind", kind}, {"spillway", SPILLWAY_VERSION_TEXT}, {"path", path}, {"report", std::move(report)}};
}

}  // namespace

std::string inert_json(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i);
    if (rest[0] == '<') {
      text += "\\u003c";
    } else if (rest[0] == '>') {
      text += "\\u003e";
    } else if (rest[0] == '&') {
      text += "\\u0026";
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      text += rest[2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += rest[0];
    }
  }
  return text;
}

std::string snapshot_page(const SnapshotReport& report) {
  Json data = start("snapshot", report.path, Json::parse(snapshot_json(report)));
  data["terms"] = snapshot_terms();
  data["history"] = history_json(report.snapshot, report.findings.device);
  return join(data);
}

std::string rehearsal_page(const SnapshotReport& report, const std::string& rehearsal) {
  Json data = start("rehearsal", report.path, Json::parse(snapshot_json(report)));
  data["rehearsal"] = Json::parse(rehearsal);
  data["terms"] = snapshot_terms();
  if (report.snapshot.devices.contains(report.findings.device))
    data["history"] = history_json(report.snapshot, report.findings.device);
  return join(data);
}

std::string ranks_page(const std::string& path, const std::string& ranks) {
  Json data = start("ranks", path, nullptr);
  data["ranks"] = Json::parse(ranks);
  return join(data);
}

std::string trace_page(const ReportInput& input, const TraceHistory* history) {
  Json data = start("trace", input.path, Json::parse(report_json(input)));
  data["headline"] =
      input.incident != nullptr ? rescue_text(input.analysis) : no_failure_text(input.contents);
  data["terms"] = trace_terms(input.incident);
  if (history != nullptr) {
    SnapshotReport found{input.path, history->history, history->findings};
    found.events = 0;  // the trace's own are in the report
    data["found"] = Json::parse(snapshot_json(found));
    data["history"] = history_json(history->history, history->findings.device);
  }
  return join(data);
}

}  // namespace spillway::tools
