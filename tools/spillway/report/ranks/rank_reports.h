// The reports that the ranks of one training left, side by side: who failed first and why, and what differs.
//
// A folder of a run has rank 0's report.json, and those of the others in rank-N. Ranks that were killed leave
// none, or that of an earlier start; the number of the start tells which belong together.
//
// Thread-safety: pure functions of the files. Errors: `error` says which file is no report. Units: bytes,
// seconds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::tools {

struct RankRow {
  uint64_t rank = 0;
  bool reported = false;  // of this start; else nothing below is known
  std::string verdict, plan;
  std::optional<uint64_t> last_step;
  uint64_t live = 0, reserved = 0, limit = 0;  // the most of a device; 0: not measured
  uint64_t moves = 0;
  double waited_seconds = 0;
};

struct RankReports {
  std::string start;  // its number, "": nobody watched
  std::vector<RankRow> rows;
  struct Incident {
    std::string number, cause;
    int64_t rank = -1;
  };
  std::optional<Incident> incident;
};

// A folder with reports, or one report.json.
bool is_run_report(const std::string& path);
// Of one folder, or of several folders or files.
std::optional<RankReports> read_rank_reports(const std::vector<std::string>& paths, std::string* error);

std::vector<std::string> differences(const RankReports& reports);
std::string rank_reports_text(const RankReports& reports);
// The same as JSON, for a page.
std::string rank_reports_json(const RankReports& reports);

}  // namespace spillway::tools
