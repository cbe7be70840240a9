#include "tools/spillway/run/pages.h"

#include <cstdio>
#include <exception>
#include <fstream>

#include "tools/spillway/rehearse/output.h"
#include "tools/spillway/report/trace_report.h"

namespace spillway::tools {
namespace {

// Of a job with many ranks that die at once, some are enough, and each takes a moment.
constexpr size_t kMostPages = 4;
constexpr uint64_t kEvents = 20;

// What stands there and is no page of an earlier run stays.
std::string page_beside(const std::string& trace) {
  return trace.ends_with(".spill")
             ? trace.substr(0, trace.size() - std::string_view(".spill").size()) + ".html"
             : trace + ".html";
}

bool is_foreign(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(1024, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return file.gcount() > 0 && start.find("<title>Spillway report") == std::string::npos;
}

// "" or what went wrong. True in `lost`: there was a failure that was not rescued.
std::string write_page(const std::string& trace, const std::string& page, bool* lost) {
  std::string wrong;
  const auto report = read_trace_report(trace, &wrong);
  *lost = report == nullptr || report->analysis().run.gave_up != 0;
  if (report == nullptr || !*lost) return wrong;
  if (is_foreign(page)) return page + " is another file, and stays";
  report->look_back();
  return write_output(page, report->page(kEvents));
}

}  // namespace

std::vector<std::string> write_pages(const std::vector<std::string>& traces) {
  std::vector<std::string> pages;
  for (const std::string& trace : traces) {
    const std::string page = page_beside(trace);
    std::string wrong;
    bool lost = false;
    // The program's exit code is told, whatever becomes of the page.
    try {
      wrong = write_page(trace, page, &lost);
    } catch (const std::exception& error) {
      lost = true;
      wrong = error.what();
    }
    if (!lost) continue;
    if (wrong.empty())
      pages.push_back(page);
    else
      std::fprintf(stderr, "spillway: no page of the report: %s\n", wrong.c_str());
    if (pages.size() == kMostPages) break;
  }
  return pages;
}

}  // namespace spillway::tools
