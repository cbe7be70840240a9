// The pages that a run leaves beside its traces: of what was not rescued, and of processes that did not end
// in order.
//
// Each is made in a process of its own: a report that goes wrong must not end the program it is about.
//
// Thread-safety: one thread. Errors: a page that cannot be written is a line on stderr; the run goes on.
#pragma once
#include <functional>
#include <string>

namespace spillway::tools {

class TraceReport;

// Whether the report is worth a page.
using PageRule = std::function<bool(const TraceReport&)>;
bool was_lost(const TraceReport& report);     // a failure was not rescued
bool was_cut_off(const TraceReport& report);  // the process did not end in order

enum class PageEnd { kWritten, kNotNeeded, kFailed };

// Beside the trace (spillway/report_page.h). What stands there and is no page of an earlier run stays.
PageEnd write_page(const std::string& trace, const PageRule& is_needed);

}  // namespace spillway::tools
