// Traces of Spillway's, and all that `spillway report` makes of them.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/anonymous_file.h"
#include "tests/fuzz/promises/history_promises.h"
#include "tests/fuzz/promises/promise.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/report/trace/trace_history.h"
#include "tools/spillway/report/trace/trace_report.h"
#include "trace/layout.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

constexpr uint64_t kEvents = 20;  // shown

void is_whole_or_says_so(const trace::Contents& contents, const uint8_t* data, size_t size) {
  trace::Header header;
  promise(size >= sizeof(header), "what is read has a header");
  std::memcpy(&header, data, sizeof(header));
  const trace::Shape shape{header.rings, header.records_per_ring, header.side_bytes};
  promise(shape.valid() && header.check == trace::header_check(header), "a damaged header is refused");
  promise(size >= shape.file_bytes() || !contents.incomplete.empty(), "a file that is cut short says so");
  promise(contents.records.size() * sizeof(trace::Record) <= size, "records are bytes of the file");
  uint64_t order = 0;
  for (const trace::Record& record : contents.records) {
    promise(record.stamp != 0 && record.order >= order, "records are whole and in order");
    order = record.order;
  }
}

void has_its_sections(const ReportInput& input) {
  const std::string text = report_text(input);
  promise_holds(text, "Spillway report: " + input.path);
  if (input.incident != nullptr) {
    promise_holds(text, "Verdict: ");
    promise_holds(text, "Incident " + std::to_string(input.incident->number));
    promise_holds(text, "Where the memory was");
    promise_holds(text, "What was tried");
  } else {
    promise_holds(text, "No allocation failed");
  }
  if (!input.contents.incomplete.empty()) promise_holds(text, input.contents.incomplete);
}

void is_data(const ReportInput& input) {
  const auto json = json_of(report_json(input));
  const auto& completeness = json.at("completeness");
  promise(completeness.at("whole") == input.contents.incomplete.empty(), "the data says whether it is whole");
  promise(json.at("incidents").size() == input.analysis.incidents.size(), "the data has every incident");
  promise(json.at("last_events").at("groups").size() <= kEvents,
          "the data has the events that were asked for");
}

// Any incident of the file at `path`, with last events in so many lines.
void shows(const std::string& path, uint64_t incident, uint64_t lines) {
  std::string error;
  const auto report = read_trace_report(path, &error);
  promise(report != nullptr, "a file that was read is read again");
  report->show(report->analysis().find(incident));
  promise(report->incident() != nullptr, "it has its incidents again");
  report->look_back(lines);
  has_its_sections(report->input());
}

void answers(const uint8_t* data, size_t size) {
  static const AnonymousFile file;
  file.hold(data, size);
  const uint64_t choice = choice_of(data, size);
  std::string error;
  const auto report = read_trace_report(file.path(), &error);
  if (report == nullptr) return promise_holds(error, file.path());
  is_whole_or_says_so(report->contents(), data, size);
  keeps_promises(history_of(report->contents()), choice / 8);
  const auto& incidents = report->analysis().incidents;
  for (size_t i = 0; i < std::min<size_t>(incidents.size(), 2); ++i)
    shows(file.path(), incidents[i].number, choice % 3);
  report->look_back(kEvents);
  has_its_sections(report->input());
  if (choice % 2 == 0) is_data(report->input());
  if (choice % 8 == 0) is_inert(report->page());
}

}  // namespace
}  // namespace spillway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::fuzz::answers(data, size);
  return 0;
}
