#include "tools/spillway/report/ranks/rank_reports.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kReportName = "report.json";

// Rank 0's, and those of the folders beside it.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return {path};
  std::vector<std::string> files;
  const fs::path folder(path);
  if (fs::exists(folder / kReportName, none)) files.push_back(folder / kReportName);
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("rank-") && fs::exists(entry.path() / kReportName, none))
      files.push_back(entry.path() / kReportName);
  return files;
}

std::optional<Json> read_json(const std::string& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("spillway_run_report")) return std::nullopt;
  return json;
}

const Json& part_of(const Json& report) {
  static const Json none;
  return report.contains("rank") ? report["rank"] : none;
}

RankRow row_of(const Json& report) {
  RankRow row{.reported = true, .verdict = report.at("verdict"), .plan = "", .last_step = {}};
  const Json& part = part_of(report);
  if (part.is_object()) row.rank = part.at("rank"), row.waited_seconds = part.at("waited_seconds");
  const Json& plans = report.at("plans");
  if (const Json& points = report.at("points"); !points.empty()) {
    row.last_step = points.back().at("last_step");
    row.plan = plans.at(points.back().at("plan").get<size_t>()).at("plan");
  } else if (!plans.empty()) {
    row.plan = plans.back().at("plan");
  }
  for (const Json& plan : plans)
    for (const Json& device : plan.at("measured")) {
      row.live = std::max<uint64_t>(row.live, device.at("live_peak_bytes"));
      row.reserved = std::max<uint64_t>(row.reserved, device.at("reserved_peak_bytes"));
      row.limit = std::max<uint64_t>(row.limit, device.at("limit_bytes"));
    }
  row.moves = report.at("all_moves").get<uint64_t>() - report.value("moves_of_others", uint64_t{0});
  return row;
}

std::string start_of(const Json& report) {
  const Json& part = part_of(report);
  return part.is_object() ? part.at("start").get<std::string>() : "";
}

// That of the report which was written last.
std::string newest_start(const std::vector<std::pair<std::string, Json>>& reports) {
  std::string start;
  std::optional<fs::file_time_type> newest;
  for (const auto& [path, report] : reports) {
    std::error_code none;
    const auto written = fs::last_write_time(path, none);
    if (newest && written <= *newest) continue;
    newest = written;
    start = start_of(report);
  }
  return start;
}

constexpr uint64_t kMostRanks = 1 << 20;

// Of all ranks, where each has a row.
uint64_t size_of(const Json& part) {
  const Json& size = part.at("size");
  if (!size.is_number_unsigned() || size.get<uint64_t>() > kMostRanks)
    throw std::invalid_argument("its count of ranks is " + size.dump());
  return size.get<uint64_t>();
}

void take(const Json& report, std::map<uint64_t, RankRow>* rows, RankReports* all) {
  const RankRow row = row_of(report);
  (*rows)[row.rank] = row;
  const Json& part = part_of(report);
  if (!part.is_object()) return;
  for (uint64_t rank = 0, size = size_of(part); rank < size; ++rank) (*rows)[rank].rank = rank;
  const Json& incident = part.at("incident");
  if (!incident.is_object() || all->incident) return;
  all->incident = {
      .number = incident.at("number"), .cause = incident.at("cause"), .rank = incident.at("rank")};
}

}  // namespace

std::string rank_reports_json(const RankReports& reports) {
  Json rows = Json::array();
  for (const RankRow& row : reports.rows)
    rows.push_back({{"rank", row.rank},
                    {"reported", row.reported},
                    {"verdict", row.verdict},
                    {"plan", row.plan},
                    {"last_step", row.last_step ? Json(*row.last_step) : Json()},
                    {"live_bytes", row.live},
                    {"reserved_bytes", row.reserved},
                    {"limit_bytes", row.limit},
                    {"moves", row.moves},
                    {"waited_seconds", row.waited_seconds}});
  Json all = {{"start", reports.start}, {"rows", rows}, {"differences", differences(reports)}};
  all["incident"] = reports.incident ? Json{{"number", reports.incident->number},
                                            {"cause", reports.incident->cause},
                                            {"rank", reports.incident->rank}}
                                     : Json();
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_run_report(const std::string& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) return true;
  return path.ends_with(".json") && read_json(path).has_value();
}

std::optional<RankReports> read_rank_reports(const std::vector<std::string>& paths, std::string* error) {
  std::vector<std::pair<std::string, Json>> reports;
  for (const std::string& path : paths)
    for (const std::string& file : files_of(path)) {
      auto json = read_json(file);
      if (!json) return *error = "'" + file + "' is no report of spillway-train", std::nullopt;
      reports.emplace_back(file, std::move(*json));
    }
  if (reports.empty())
    return *error = "'" + paths.front() + "' has no report.json, as spillway-train leaves it in run.out",
           std::nullopt;
  RankReports all;
  std::map<uint64_t, RankRow> rows;
  try {
    all.start = newest_start(reports);
    for (const auto& [path, report] : reports)
      if (start_of(report) == all.start) take(report, &rows, &all);
  } catch (const std::exception& wrong) {  // of Json's, and of ours
    return *error = "a report of another version: " + std::string(wrong.what()), std::nullopt;
  }
  for (auto& [rank, row] : rows) all.rows.push_back(std::move(row));
  return all;
}

}  // namespace spillway::tools
