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

// The text of a page. "": none is needed, or `wrong` says why there is none.
using PageMaker = std::function<std::string(std::string* wrong)>;

// Makes it and writes it. `of`: what it is about. What stands there and is no page of an earlier run stays.
PageEnd leave_page(const std::string& page, const std::string& of, const PageMaker& make);

// Where a process's trace goes that has been given no place; "%p" is the process id. "": nothing can be
// written in the current folder.
std::string trace_in_current_folder();
// Of a trace, beside it (base/report_page.h).
PageEnd write_page(const std::string& trace, const PageRule& is_needed);

}  // namespace spillway::tools
