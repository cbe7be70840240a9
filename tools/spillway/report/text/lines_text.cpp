#include "tools/spillway/report/text/lines_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/report/trace/trace_history.h"

namespace spillway::tools {
namespace {

std::vector<NamedLine> lines_at(const std::vector<StackName>& places, SourceLines* sources) {
  std::vector<NamedLine> lines;
  std::set<std::string> told;
  for (const StackName& name : places)
    for (const std::string& place : {name.where, name.caller})
      if (const std::string line = sources->of(place); !line.empty() && told.insert(place).second)
        lines.push_back({place, line});
  return lines;
}

}  // namespace

std::vector<NamedLine> named_lines(const ReportInput& input) {
  if (input.incident == nullptr) return {};
  SourceLines sources(input.path);
  for (const auto& [index, stack] : input.contents.names) sources.know(frames_of(stack));
  std::vector<StackName> places;
  if (const auto& asker = input.incident->asker) places.push_back({asker->where, asker->caller});
  for (size_t i = 0; i < std::min(kHoldersShown, input.incident->holders.size()); ++i) {
    const SiteName& site = input.incident->holders[i].site;
    places.push_back({site.where, site.caller});
  }
  return lines_at(places, &sources);
}

std::vector<NamedLine> named_lines(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  SourceLines sources(report.path);
  for (const auto& frames : report.snapshot.stacks) sources.know(frames);
  std::vector<StackName> places;
  if (found.failure) places.push_back({found.failure->where, found.failure->caller});
  for (size_t i = 0; i < std::min(kHoldersShown, found.holders.size()); ++i)
    places.push_back({found.holders[i].where, found.holders[i].caller});
  return lines_at(places, &sources);
}

std::string lines_text(const std::vector<NamedLine>& lines) {
  if (lines.empty()) return "";
  Table table({Align::kLeft, Align::kLeft});
  for (const NamedLine& line : lines) table.add({line.place, line.line});
  return "\nThose lines\n" + table.text("  ");
}

nlohmann::ordered_json lines_json(const std::vector<NamedLine>& lines) {
  auto list = nlohmann::ordered_json::array();
  for (const NamedLine& line : lines) list.push_back({{"place", line.place}, {"line", line.line}});
  return list;
}

}  // namespace spillway::tools
