#include <algorithm>
#include <map>
#include <set>

#include "base/printed.h"
#include "tools/spillway/report/ranks/rank_reports.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

// What is nearer than this is the same: seconds of waiting, and a share of the memory.
constexpr double kWaitsAlike = 1, kMemoryAlike = 0.1;

std::vector<const RankRow*> reported(const RankReports& reports) {
  std::vector<const RankRow*> rows;
  for (const RankRow& row : reports.rows)
    if (row.reported) rows.push_back(&row);
  return rows;
}

std::string rank_name(const RankRow& row) {
  return "rank " + std::to_string(row.rank);
}

// Each rank whose value is not that of most.
template <typename Value>
void name_others(const std::vector<const RankRow*>& rows, const Value& value, const char* what,
                 std::vector<std::string>* lines) {
  std::map<std::string, size_t> counts;
  for (const RankRow* row : rows) ++counts[value(*row)];
  if (counts.size() < 2) return;
  std::string most = value(*rows.front());
  for (const auto& [text, count] : counts)
    if (count > counts[most]) most = text;
  for (const RankRow* row : rows)
    if (value(*row) != most)
      lines->push_back(rank_name(*row) + " has " + what + " " + value(*row) + ", where " +
                       std::to_string(counts[most]) + (counts[most] == 1 ? " rank has " : " ranks have ") +
                       most);
}

std::string step_text(const RankRow& row) {
  return row.last_step ? std::to_string(*row.last_step) : "-";
}

std::string bytes_text(uint64_t bytes) {
  return bytes == 0 ? "-" : size_text(bytes);
}

void name_memory(const std::vector<const RankRow*>& rows, std::vector<std::string>* lines) {
  const auto by_reserved = [](const RankRow* a, const RankRow* b) { return a->reserved < b->reserved; };
  const auto [least, most] = std::ranges::minmax_element(rows, by_reserved);
  if (double((*most)->reserved - (*least)->reserved) <= kMemoryAlike * double((*most)->reserved)) return;
  lines->push_back(rank_name(**most) + " reserved most memory, " + bytes_text((*most)->reserved) + "; " +
                   rank_name(**least) + " least, " + bytes_text((*least)->reserved));
}

void name_waits(const std::vector<const RankRow*>& rows, std::vector<std::string>* lines) {
  const auto by_wait = [](const RankRow* a, const RankRow* b) {
    return a->waited_seconds < b->waited_seconds;
  };
  const auto [least, most] = std::ranges::minmax_element(rows, by_wait);
  if ((*most)->waited_seconds - (*least)->waited_seconds < kWaitsAlike) return;
  lines->push_back(printed("%s waited %.1f s and %s %.1f s: the others wait for %s",
                           rank_name(**most).c_str(), (*most)->waited_seconds, rank_name(**least).c_str(),
                           (*least)->waited_seconds, rank_name(**least).c_str()));
}

std::string table_of(const RankReports& reports) {
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kLeft});
  table.add({"rank", "last step", "in use", "reserved", "limit", "moves", "waited", "plan"});
  for (const RankRow& row : reports.rows) {
    const std::string rank = std::to_string(row.rank);
    if (!row.reported)
      table.add({rank, "-", "-", "-", "-", "-", "-", "no report of this start: it was killed"});
    else
      table.add({rank, step_text(row), bytes_text(row.live), bytes_text(row.reserved), bytes_text(row.limit),
                 std::to_string(row.moves), printed("%.1f s", row.waited_seconds), row.plan});
  }
  return table.text("  ");
}

}  // namespace

std::vector<std::string> differences(const RankReports& reports) {
  const std::vector<const RankRow*> rows = reported(reports);
  std::vector<std::string> lines;
  if (rows.size() < 2) return lines;
  name_others(rows, [](const RankRow& row) { return row.plan; }, "the plan", &lines);
  name_others(rows, [](const RankRow& row) { return std::to_string(row.moves); }, "changes of plan:", &lines);
  name_others(rows, step_text, "the last step", &lines);
  name_memory(rows, &lines);
  name_waits(rows, &lines);
  return lines;
}

std::string rank_reports_text(const RankReports& reports) {
  const size_t count = reports.rows.size();
  std::string text = "spillway-train: " + count_text(count, "rank", "ranks");
  if (!reports.start.empty()) text += ", start " + reports.start;
  text += "\n";
  if (reports.incident) {
    const auto& incident = *reports.incident;
    text += "first  " + (incident.rank < 0 ? "no single rank" : "rank " + std::to_string(incident.rank)) +
            ", incident " + incident.number + "\ncause  " + incident.cause + "\n";
  }
  text += "\nRanks, with the most memory of a step\n" + table_of(reports);
  text += "\nHow they ended\n";
  for (const RankRow& row : reports.rows)
    if (row.reported) text += "  " + rank_name(row) + ": " + row.verdict + "\n";
  const std::vector<std::string> found = differences(reports);
  if (!found.empty()) text += "\nDifferences\n";
  for (const std::string& line : found) text += "  " + line + "\n";
  return text;
}

}  // namespace spillway::tools
