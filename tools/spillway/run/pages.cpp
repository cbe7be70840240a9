#include "tools/spillway/run/pages.h"

#include <cstdio>
#include <exception>
#include <fstream>

#include "spillway/report_page.h"
#include "tools/spillway/rehearse/output.h"
#include "tools/spillway/report/trace_report.h"
#include "tools/spillway/run/apart.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kEvents = 20;
constexpr std::chrono::minutes kMost{2};  // a million events take seconds

bool is_foreign(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(1024, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return file.gcount() > 0 && start.find("<title>Spillway report") == std::string::npos;
}

PageEnd say_why_not(const std::string& wrong) {
  std::fprintf(stderr, "spillway: no page of the report: %s\n", wrong.c_str());
  return PageEnd::kFailed;
}

// In a process of its own.
PageEnd write_from(const std::string& trace, const std::string& page, const PageRule& is_needed) {
  std::string wrong;
  const auto report = read_trace_report(trace, &wrong);
  if (report == nullptr) return say_why_not(wrong);
  if (!is_needed(*report)) return PageEnd::kNotNeeded;
  if (is_foreign(page)) return say_why_not(page + " is another file, and stays");
  report->look_back();
  wrong = write_output(page, report->page(kEvents));
  return wrong.empty() ? PageEnd::kWritten : say_why_not(wrong);
}

int as_code(const std::string& trace, const std::string& page, const PageRule& is_needed) {
  try {
    return static_cast<int>(write_from(trace, page, is_needed));
  } catch (const std::exception& error) {
    return static_cast<int>(say_why_not(error.what()));
  }
}

}  // namespace

bool was_lost(const TraceReport& report) {
  return report.analysis().run.gave_up != 0;
}

bool was_cut_off(const TraceReport& report) {
  return was_lost(report) || !report.contents().closed;
}

PageEnd write_page(const std::string& trace, const PageRule& is_needed) {
  const std::string page = page_beside(trace);
  const ApartEnd end = run_apart([&] { return as_code(trace, page, is_needed); }, kMost);
  if (!end.in_time) return say_why_not(trace + ": it took too long, or was stopped");
  if (end.code > static_cast<int>(PageEnd::kFailed))
    return say_why_not(trace + ": its writer ended with " + std::to_string(end.code));
  return static_cast<PageEnd>(end.code);
}

}  // namespace spillway::tools
