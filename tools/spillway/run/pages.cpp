#include "tools/spillway/run/pages.h"

#include <cstdio>
#include <filesystem>

#include "tools/spillway/rehearse/output.h"
#include "tools/spillway/report/trace_report.h"

namespace spillway::tools {
namespace {

// Of a job with many ranks that die at once, some are enough, and each takes a moment.
constexpr size_t kMostPages = 4;
constexpr uint64_t kEvents = 20;

}  // namespace

std::vector<std::string> write_pages(const std::vector<std::string>& traces) {
  std::vector<std::string> pages;
  for (const std::string& trace : traces) {
    std::string wrong;
    const auto report = read_trace_report(trace, &wrong);
    if (report != nullptr && report->analysis().run.gave_up == 0) continue;
    const std::string page = std::filesystem::path(trace).replace_extension(".html").string();
    if (report != nullptr) {
      report->look_back();
      wrong = write_output(page, report->page(kEvents));
    }
    if (wrong.empty())
      pages.push_back(page);
    else
      std::fprintf(stderr, "spillway: no page of the report: %s\n", wrong.c_str());
    if (pages.size() == kMostPages) break;
  }
  return pages;
}

}  // namespace spillway::tools
