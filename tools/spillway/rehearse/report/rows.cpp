#include "tools/spillway/rehearse/report/rows.h"

#include <cstdio>

#include "allocator/request/verdict.h"
#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/rehearse/report/report_json.h"
#include "tools/spillway/rehearse/report/report_text.h"

namespace spillway::tools {

RunSummary summary_of(const RunOptions& options, const Rehearsal& rehearsal) {
  return {decide(rehearsal), largest_need(rehearsal), rehearsal.exit_code, fits_if(options, rehearsal),
          failure_line(rehearsal)};
}

Words row_cells(const std::string& name, const RunSummary& run) {
  const Need& need = run.need;
  const bool known = need.peak > 0 && run.fit != Fit::kNoKernels;
  const bool fits = run.fit == Fit::kFits && need.capacity >= need.peak;
  return {name,
          std::string(fit_text(run.fit)) + (run.condition.empty() ? "" : ", if"),
          known ? size_text(need.allocated) : "-",
          known ? size_text(need.reserved) : "-",
          known ? size_text(need.outside) : "-",
          known ? size_text(need.peak) : "-",
          fits ? size_text(need.capacity - need.peak) : "-"};
}

std::string row_note(const std::string& name, const RunSummary& run) {
  if (!run.why.empty()) return name + ": " + fit_text(run.fit) + ": " + run.why + "\n";
  return run.condition.empty()
             ? ""
             : name + ": fits, " + run.condition +
                   " (a run of it alone names the lines; --values compute has true values)\n";
}

Table row_table(const std::string& first) {
  using enum Align;
  Table table({kRight, kLeft, kRight, kRight, kRight, kRight, kRight});
  table.add({first, "", "allocated", "reserved", "outside PyTorch", "whole card", "margin"});
  return table;
}

RowJson row_json(const RunSummary& run) {
  return {{"verdict", fit_name(run.fit)},
          {"condition", run.condition},
          {"why", run.why},
          {"program_exit_code", run.exit_code},
          {"peak_allocated_bytes", run.need.allocated},
          {"peak_reserved_bytes", run.need.reserved},
          {"outside_bytes", run.need.outside},
          {"peak_bytes", run.need.peak},
          {"capacity_bytes", run.need.capacity}};
}

void show_end(const std::string& log) {
  constexpr int kLines = 15;
  size_t from = log.size();
  for (int lines = 0; from > 0 && lines <= kLines; --from) lines += log[from - 1] == '\n';
  std::fputs(log.c_str() + (from == 0 ? 0 : from + 1), stderr);
}

int save_rows(const std::string& path, const RowJson& json) {
  if (path.empty()) return kSuccess;
  const std::string error =
      write_output(path, json.dump(2, ' ', false, RowJson::error_handler_t::replace) + "\n");
  return error.empty() ? kSuccess : fail(kUnwritable, "rehearse: --json: " + error);
}

}  // namespace spillway::tools
