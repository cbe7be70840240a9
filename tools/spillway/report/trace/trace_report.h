// A trace with all that its report shows, for whoever prints it: as text, as JSON, as a page.
//
// Thread-safety: one call of `look_back` at a time in a process (replay/counterfactuals.h). Ownership: the
// parts refer to each other, so a TraceReport stays where it is. Errors: `read_trace_report` says why a file
// cannot be read.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/report/analysis.h"
#include "tools/spillway/report/render.h"
#include "trace/reader.h"

namespace spillway::tools {

class TraceReport {
 public:
  TraceReport(std::string path, trace::Contents contents);
  TraceReport(const TraceReport&) = delete;
  TraceReport& operator=(const TraceReport&) = delete;

  const trace::Contents& contents() const { return contents_; }
  const Analysis& analysis() const { return analysis_; }
  const Incident* incident() const { return incident_; }
  void show(const Incident* incident) { incident_ = incident; }

  // Adds the last events, in `lines` lines at most; what the process had at last, and who held it, where it
  // did not close its trace and no incident but the foremost is shown; and what the history of allocations
  // tells, where the incident that is shown is the last that was not rescued, of a block of Spillway's. The
  // contents have no records from then on where the history was needed: what else is asked of them comes
  // before.
  void look_back(uint64_t lines);

  ReportInput input() const;  // REQUIRES: look_back
  std::string page() const;   // as one HTML page; REQUIRES: look_back

 private:
  void look_at_the_end();
  void find_who_holds_it();
  void take_last_told(const HistoryFindings& in_history);
  bool needs_findings() const;
  Counted counted_holders() const;

  const std::string path_;
  trace::Contents contents_;
  Analysis analysis_;
  const Incident* incident_;
  LastEvents last_events_;
  MemoryHistory history_;
  std::vector<LastMemory> last_;
  std::optional<HistoryFindings> findings_, at_last_, told_at_last_;
  std::optional<uint64_t> told_ns_;
  std::optional<Counterfactuals> fitted_;
};

// Null, and `error`, for a file that is no trace.
std::unique_ptr<TraceReport> read_trace_report(const std::string& path, std::string* error);

}  // namespace spillway::tools
