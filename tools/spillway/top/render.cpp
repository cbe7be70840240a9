#include "tools/spillway/top/render.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/spillway/look.h"
#include "tools/spillway/report/analysis.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint64_t kNsPerMs = 1'000'000;

const char* name_of(HeldBy by) {
  switch (by) {
    case HeldBy::kFramework:
      return "PyTorch";
    case HeldBy::kSpillway:
      return "Spillway";
    case HeldBy::kBoth:
      return "both";
    case HeldBy::kDriverCalls:
      return "driver calls";
    case HeldBy::kNothing:
      return "-";
    case HeldBy::kUnknown:
      break;
  }
  return "not known";
}

std::string or_none(uint64_t bytes) {
  return bytes == 0 ? "-" : size_text(bytes);
}

// In host memory, but for what is said to be elsewhere.
std::string spilled_text(const Share& share) {
  std::string text = or_none(share.spilled_bytes);
  if (share.spilled_peer_bytes != 0) text += " (" + size_text(share.spilled_peer_bytes) + " peer)";
  if (share.spilled_nvme_bytes != 0) text += " (" + size_text(share.spilled_nvme_bytes) + " file)";
  return text;
}

std::string age_text(const LedgerMember& member) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(member.age_ns) / 1e9);
  return member.has_entry ? text : "-";
}

std::string doing(const LedgerMember& member) {
  std::string text = member.entry.phase;
  if (member.need_bytes != 0)
    text += (text.empty() ? "" : ", ") + std::string("asks for ") + size_text(member.need_bytes);
  return text.empty() ? "-" : text;
}

std::string this_host() {
  char name[64] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string program_of(const LedgerMember& member, const std::string& host) {
  if (!member.has_entry) return "(has shown nothing yet)";
  std::string text = std::string(member.entry.program).substr(0, 40);
  if (member.entry.container[0] != '\0') return text + " @" + member.entry.container;
  return host == member.entry.host ? text : text + " @" + member.entry.host;
}

Table table_of_processes() {
  const auto left = Align::kLeft, right = Align::kRight;
  Table table({right, left, left, right, right, right, right, left, right, right, right, right, left, right});
  table.add({"pid", "program", "mode", "held", "cached", "spare", "spilled", "by", "limit", "guarantee",
             "failures", "rescued", "phase", "age"});
  return table;
}

void add_row(Table* table, const LedgerMember& member, const Share& share, const std::string& host) {
  const bool known = share.by != HeldBy::kUnknown;
  const bool cached_known = known && share.by != HeldBy::kDriverCalls;
  table->add({std::to_string(member.process), program_of(member, host),
              member.has_entry ? member.entry.mode : "-", known ? size_text(share.held_bytes) : "?",
              cached_known ? size_text(share.cached_bytes) : "?", or_none(share.spare_bytes),
              spilled_text(share), name_of(share.by), or_none(share.limit_bytes),
              or_none(member.entry.guarantee_bytes), std::to_string(member.entry.failures),
              std::to_string(member.entry.rescued), doing(member), age_text(member)});
}

// "0 NVIDIA A100-SXM4-40GB (GPU-00112233-...)", as far as it is known.
std::string card_text(const DeviceOverview& device) {
  std::string text = device.number == 0 ? "" : std::to_string(device.number - 1);
  if (!device.name.empty()) text += (text.empty() ? "" : " ") + device.name;
  const std::string uuid = uuid_text(device.uuid);
  return text.empty() ? uuid : text + " (" + uuid + ")";
}

std::string device_line(const DeviceOverview& device) {
  std::string text = card_text(device) + "  ";
  if (device.device_bytes == 0)
    return text + "held " + size_text(device.held_bytes) + ", the card's memory is not known";
  return text + size_text(device.device_bytes) + ", in use " + size_text(device.used_bytes) + ": held " +
         size_text(device.held_bytes) + " (" + size_text(device.cached_bytes) + " cached), other " +
         size_text(device.other_bytes);
}

// "" where the card's memory is not known.
std::string device_bar(const DeviceOverview& device) {
  if (device.device_bytes == 0) return "";
  const uint64_t held = std::min(device.held_bytes, device.used_bytes);
  const uint64_t cached = std::min(device.cached_bytes, held);
  return "  " +
         memory_bar({{Mark::kInUse, "in use", held - cached},
                     {Mark::kCached, "cached", cached},
                     {Mark::kOutside, "other", device.used_bytes - held},
                     {Mark::kFree, "free",
                      device.device_bytes - std::min(device.used_bytes, device.device_bytes)}}) +
         "\n";
}

// The report's words.
const char* how_it_went(uint64_t outcome) {
  switch (outcome) {
    case LedgerIncident::kGranted:
      return outcome_text(trace::Outcome::kGranted);
    case LedgerIncident::kUnwind:
      return outcome_text(trace::Outcome::kUnwind);
    default:
      return outcome_text(trace::Outcome::kGiveUp);
  }
}

std::string strategies_text(const LedgerEntry& entry) {
  std::string text;
  for (const LedgerStrategy& strategy : entry.strategies)
    if (strategy.name[0] != '\0')
      text += (text.empty() ? "" : ", ") + std::string(strategy.name) + " " +
              std::to_string(strategy.useful) + " of " + std::to_string(strategy.tried) + " (" +
              size_text(strategy.bytes) + ")";
  return text.empty() ? "-" : text;
}

// Of each process that was short of memory, how its latest incident went and which strategies were of use.
std::string ladder_text(const std::vector<LedgerMember>& members) {
  std::string text;
  for (const LedgerMember& member : members) {
    const LedgerIncident& last = member.entry.incident;
    if (!member.has_entry || last.number == 0) continue;
    char age[32];
    std::snprintf(age, sizeof age, "%.1f s", static_cast<double>(incident_age_ns(member)) / 1e9);
    text += "  " + std::to_string(member.process) + "  incident " + std::to_string(last.number) + ", " + age +
            " ago: " + size_text(last.asked_bytes) + " asked, " + how_it_went(last.outcome) + " in " +
            duration_text(last.microseconds) +
            "; tried: " + (last.tried[0] == '\0' ? "nothing" : last.tried) + "\n" +
            std::string(std::to_string(member.process).size() + 4, ' ') +
            "of use until now: " + strategies_text(member.entry) + "\n";
  }
  return text.empty() ? "" : "\nWhat was tried\n" + text;
}

bool uses_a_device(const LedgerMember& member) {
  return member.has_entry && member.entry.device_count != 0;
}

Json json_of(const Share& share, const Overview& overview) {
  const bool known = share.by != HeldBy::kUnknown;
  const bool cached_known = known && share.by != HeldBy::kDriverCalls;
  return {{"pid", overview.processes[share.process].process},
          {"held_bytes", known ? Json(share.held_bytes) : Json()},
          {"cached_bytes", cached_known ? Json(share.cached_bytes) : Json()},
          {"spare_bytes", share.spare_bytes},
          {"spilled_bytes", share.spilled_bytes},
          {"spilled_peer_bytes", share.spilled_peer_bytes},
          {"spilled_nvme_bytes", share.spilled_nvme_bytes},
          {"held_by", name_of(share.by)},
          {"limit_bytes", share.limit_bytes == 0 ? Json() : Json(share.limit_bytes)}};
}

Json json_of_incident(const LedgerMember& member) {
  const LedgerIncident& last = member.entry.incident;
  if (last.number == 0) return {};
  return {{"number", last.number},
          {"asked_bytes", last.asked_bytes},
          {"gained_bytes", last.gained_bytes},
          {"us", last.microseconds},
          {"outcome", how_it_went(last.outcome)},
          {"tried", last.tried},
          {"age_ms", incident_age_ns(member) / kNsPerMs}};
}

Json json_of_strategies(const LedgerEntry& entry) {
  Json strategies = Json::array();
  for (const LedgerStrategy& strategy : entry.strategies)
    if (strategy.name[0] != '\0')
      strategies.push_back({{"name", strategy.name},
                            {"tried", strategy.tried},
                            {"useful", strategy.useful},
                            {"bytes", strategy.bytes},
                            {"us", strategy.microseconds}});
  return strategies;
}

Json json_of(const LedgerMember& member) {
  const LedgerEntry& entry = member.entry;
  Json json{{"pid", member.process}};
  if (member.has_entry)
    json.update({{"program", entry.program},
                 {"host", entry.host},
                 {"container", entry.container},
                 {"mode", entry.mode},
                 {"phase", entry.phase},
                 {"guarantee_bytes", entry.guarantee_bytes == 0 ? Json() : Json(entry.guarantee_bytes)},
                 {"failures", entry.failures},
                 {"rescued", entry.rescued},
                 {"rescued_bytes", entry.rescued_bytes},
                 {"last_incident", json_of_incident(member)},
                 {"strategies", json_of_strategies(entry)},
                 {"age_ms", member.age_ns / kNsPerMs}});
  json["asks"] = member.need_bytes == 0
                     ? Json()
                     : Json{{"bytes", member.need_bytes}, {"device", uuid_text(member.need_device)}};
  return json;
}

}  // namespace

std::string top_text(const Overview& overview) {
  if (overview.processes.empty()) return "no process takes part: start one with 'spillway run'\n";
  const std::string host = this_host();
  std::string text = count_text(overview.processes.size(), "process", "processes") + " on " +
                     count_text(overview.devices.size(), "device", "devices") + ", " +
                     count_text(overview.failures, "memory failure", "memory failures") + ", " +
                     std::to_string(overview.rescued) + " rescued (" + size_text(overview.rescued_bytes) +
                     ")\n";
  for (const DeviceOverview& device : overview.devices) {
    Table table = table_of_processes();
    for (const Share& share : device.shares) add_row(&table, overview.processes[share.process], share, host);
    text += "\n" + device_line(device) + "\n" + device_bar(device) + table.text("  ");
  }
  if (std::ranges::all_of(overview.processes, uses_a_device)) return text + ladder_text(overview.processes);
  Table table = table_of_processes();
  for (const LedgerMember& member : overview.processes)
    if (!uses_a_device(member)) add_row(&table, member, {}, host);
  return text + "\nno device in use\n" + table.text("  ") + ladder_text(overview.processes);
}

std::string top_json(const Overview& overview) {
  Json devices = Json::array(), processes = Json::array();
  for (const DeviceOverview& device : overview.devices) {
    Json shares = Json::array();
    for (const Share& share : device.shares) shares.push_back(json_of(share, overview));
    const bool known = device.device_bytes != 0;
    devices.push_back({{"index", device.number == 0 ? Json() : Json(device.number - 1)},
                       {"name", device.name.empty() ? Json() : Json(device.name)},
                       {"uuid", uuid_text(device.uuid)},
                       {"device_bytes", known ? Json(device.device_bytes) : Json()},
                       {"used_bytes", known ? Json(device.used_bytes) : Json()},
                       {"held_bytes", device.held_bytes},
                       {"cached_bytes", device.cached_bytes},
                       {"other_bytes", known ? Json(device.other_bytes) : Json()},
                       {"processes", shares}});
  }
  for (const LedgerMember& member : overview.processes) processes.push_back(json_of(member));
  const Json totals{{"processes", overview.processes.size()},
                    {"failures", overview.failures},
                    {"rescued", overview.rescued},
                    {"rescued_bytes", overview.rescued_bytes}};
  return Json{{"devices", devices}, {"processes", processes}, {"totals", totals}}.dump() + "\n";
}

namespace {

// Characters and not bytes: the bar's have three.
std::string_view beginning_of(std::string_view line, size_t characters) {
  size_t at = 0;
  for (; at < line.size(); ++at) {
    const bool begins_one = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (begins_one && characters-- == 0) break;
  }
  return line.substr(0, at);
}

}  // namespace

std::string cut_to_screen(const std::string& text, size_t rows, size_t columns) {
  std::string out;
  size_t row = 0;
  for (size_t at = 0; at < text.size(); ++row) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (row + 2 >= rows) {
      const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), '\n');
      return out + "... " + std::to_string(more) + " more lines\n";
    }
    out += beginning_of(std::string_view(text).substr(at, end - at), columns);
    out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace spillway::tools
