// A report as one HTML page that needs nothing else: the data of the `--json` report and the history behind
// it, joined with the page's markup, style and scripts (page/web/, put together by page/assemble.py at build
// time).
//
// The page holds names that a hostile file may have chosen. They stand in the page as JSON in which no markup
// can begin, its scripts show them as text alone, and its policy lets it run nothing else and reach no
// network.
//
// Thread-safety: pure functions. Units: bytes. Errors: none; a view whose data is missing says so.
#pragma once
#include <string>
#include <string_view>

#include "tools/spillway/report/render.h"
#include "tools/spillway/snapshot/report.h"

namespace spillway::tools {

// What a trace tells of memory over time, where it tells it.
struct TraceHistory {
  const MemoryHistory& history;
  const HistoryFindings& findings;
};

std::string snapshot_page(const SnapshotReport& report);
// `history`: null where the trace holds none.
std::string trace_page(const ReportInput& input, const TraceHistory* history);

// Of a rehearsal: `rehearsal` is what it adds to the report of its history, as JSON (rehearse/page.cpp). The
// history may be empty.
std::string rehearsal_page(const SnapshotReport& report, const std::string& rehearsal);

// Of a training's ranks side by side: `ranks` as JSON (report/ranks/rank_reports.h).
std::string ranks_page(const std::string& path, const std::string& ranks);

// JSON as it may stand inside a script element: still JSON, without the characters that end the element.
std::string inert_json(std::string_view json);

}  // namespace spillway::tools
