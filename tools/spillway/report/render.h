// The report as text for people and as JSON for programs, from the same data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/spillway/history/last_events.h"
#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/report/analysis.h"
#include "trace/reader.h"

namespace spillway::tools {

struct ReportInput {
  const std::string& path;
  const trace::Contents& contents;
  const Analysis& analysis;
  const Incident* incident;  // the one shown in full; null: none
  const LastEvents& last_events;
  // Of the last failure that was not rescued; null: that is not shown.
  const HistoryFindings* findings = nullptr;
  const Counterfactuals* fitted = nullptr;
  std::vector<LastMemory> last;  // of a process that did not close its trace
  // Likewise, of the device of which it had most; without peak and growth where a request has failed. Null:
  // no trace of requests.
  const HistoryFindings* at_last = nullptr;
  // When the process told what `at_last` has, where its history has lost too much; trace::clock_ns.
  std::optional<uint64_t> told_ns = std::nullopt;
};

std::string report_text(const ReportInput& input);
std::string report_json(const ReportInput& input);

// Why the request of `input.incident` failed: by what grew, or else by the equation.
struct Reason {
  std::string cause, text;
};
Reason reason_of(const ReportInput& input);
// How much more the place holds after each step; null: not known, or not at all.
const Growth* growth_of(const ReportInput& input, const SiteName& site);
// "RESCUED: ...", "NOT RESCUED: ...", or "" where the trace ends before it is decided. REQUIRES: an incident.
std::string rescue_text(const Analysis& analysis);
// What a term of the equation is; null: the incident's equation has no such term.
const char* term_meaning(const Incident& incident, trace::Term term);

// Of what `at_last` had in use: what the history has no allocation of. REQUIRES: there is one.
uint64_t older_bytes(const ReportInput& input);

// Whether a sample of the allocations alone has a place.
bool is_sampled(const ReportInput& input);

// Parts of the text.
std::string site_text(const SiteName& site);
std::string holders_text(const ReportInput& input);  // of the incident, which must not be null
std::string at_last_text(const ReportInput& input);  // "" where the trace does not tell
std::string run_text(const ReportInput& input);
std::string events_text(const ReportInput& input);
std::string completeness_text(const ReportInput& input);

// One event in words, without its place in the order.
std::string event_text(const trace::Contents& contents, const trace::Record& record);
const char* kind_name(trace::Kind kind);

// Of a trace without an incident: that nothing failed, or not in what is left of it.
std::string no_failure_text(const trace::Contents& contents);
// That the file is not whole; and of a process that is no more and did not close its trace, what it held.
std::string cut_off_text(const ReportInput& input);
// How the process ended, as far as its file shows.
std::string ending_text(const trace::Contents& contents);

}  // namespace spillway::tools
