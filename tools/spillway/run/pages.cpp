#include "tools/spillway/run/pages.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/report_page.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/report/trace/trace_report.h"
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
PageEnd make_and_write(const std::string& page, const PageMaker& make) {
  std::string wrong;
  const std::string text = make(&wrong);
  if (!wrong.empty()) return say_why_not(wrong);
  if (text.empty()) return PageEnd::kNotNeeded;
  if (is_foreign(page)) return say_why_not(page + " is another file, and stays");
  wrong = write_output(page, text);
  return wrong.empty() ? PageEnd::kWritten : say_why_not(wrong);
}

int as_code(const std::string& page, const PageMaker& make) {
  try {
    return static_cast<int>(make_and_write(page, make));
  } catch (const std::exception& error) {
    return static_cast<int>(say_why_not(error.what()));
  }
}

std::string page_of_trace(const std::string& trace, const PageRule& is_needed, std::string* wrong) {
  const auto report = read_trace_report(trace, wrong);
  if (report == nullptr || !is_needed(*report)) return "";
  report->look_back(kEvents);
  return report->page();
}

}  // namespace

bool was_lost(const TraceReport& report) {
  return report.analysis().run.gave_up != 0;
}

bool was_cut_off(const TraceReport& report) {
  return was_lost(report) || !report.contents().closed;
}

std::string trace_in_current_folder() {
  if (::access(".", W_OK) != 0) return "";
  return (std::filesystem::current_path() / "spillway-%p.spill").string();
}

PageEnd leave_page(const std::string& page, const std::string& of, const PageMaker& make) {
  const ApartEnd end = run_apart([&] { return as_code(page, make); }, kMost);
  if (!end.in_time) return say_why_not(of + ": it took too long, or was stopped");
  if (end.code > static_cast<int>(PageEnd::kFailed))
    return say_why_not(of + ": its writer ended with " + std::to_string(end.code));
  return static_cast<PageEnd>(end.code);
}

PageEnd write_page(const std::string& trace, const PageRule& is_needed) {
  return leave_page(page_beside(trace), trace,
                    [&](std::string* wrong) { return page_of_trace(trace, is_needed, wrong); });
}

}  // namespace spillway::tools
