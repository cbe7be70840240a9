#include "tools/spillway/rehearse/run/baseline.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "allocator/request/verdict.h"
#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;

// "model.py:47 forward" → "model.py forward".
std::string without_line(const std::string& where) {
  const size_t colon = where.find(':');
  if (colon == std::string::npos) return where;
  const size_t end = where.find_first_not_of("0123456789", colon + 1);
  return end == colon + 1 ? where
                          : where.substr(0, colon) + (end == std::string::npos ? "" : where.substr(end));
}

std::vector<GrownPlace> grown(const DeviceBaseline& now, const DeviceBaseline& before) {
  std::vector<GrownPlace> list;
  for (const auto& [place, bytes] : now.places) {
    const auto old = before.places.find(place);
    const uint64_t was = old == before.places.end() ? 0 : old->second;
    if (bytes > was) list.push_back({place, was, bytes});
  }
  std::stable_sort(list.begin(), list.end(), [](const GrownPlace& a, const GrownPlace& b) {
    return a.after - a.before > b.after - b.before;
  });
  return list;
}

template <typename Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const Settings& settings) {
  return {{"card", json_of(settings.card)},     {"capacity_bytes", json_of(settings.capacity_bytes)},
          {"gpus", json_of(settings.gpus)},     {"allocator", json_of(settings.allocator)},
          {"values", json_of(settings.values)}, {"steps", json_of(settings.steps)}};
}

template <typename Value>
void read(const Json& json, const char* name, std::optional<Value>* out) {
  if (const Json& value = json.at(name); !value.is_null()) *out = value.get<Value>();
}

Settings read_settings(const Json& json) {
  Settings settings;
  read(json, "card", &settings.card);
  read(json, "capacity_bytes", &settings.capacity_bytes);
  read(json, "gpus", &settings.gpus);
  read(json, "allocator", &settings.allocator);
  read(json, "values", &settings.values);
  read(json, "steps", &settings.steps);
  return settings;
}

constexpr const char* kNotJudged = "not judged: this run's peak is not what the program needs";

std::string against_budget(const std::string& device) {
  return device + ": peak against the budget";
}

std::string against_baseline(const std::string& device) {
  return device + ": peak against the baseline";
}

std::string compared(const char* what, uint64_t now, uint64_t before) {
  char share[32] = "";
  if (before > 0)
    std::snprintf(share, sizeof share, " (%+.1f%%)",
                  100.0 * (static_cast<double>(now) / static_cast<double>(before) - 1));
  return std::string(what) + " " + size_text(now) + ", baseline " + size_text(before) + share;
}

}  // namespace

// By card: its number, unlike a process's, is the same in every run, and its room is what there is.
Baseline baseline_of(const RunOptions& options, const Rehearsal& rehearsal) {
  Baseline baseline{settings_of(options, rehearsal), {}};
  const auto name = [](int card) { return "GPU " + std::to_string(card); };
  for (const CardNeed& card : needs_of(rehearsal))
    if (card.need.peak > 0) baseline.devices[name(card.physical)] = {card.need.peak, card.need.allocated, {}};
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices) {
      const auto entry = baseline.devices.find(name(physical_of(device)));
      if (!device.allocator || entry == baseline.devices.end()) continue;
      for (const PlaceShare& share : share_by_place(device.allocator->held_at_peak, process.places)) {
        const std::string caller = share.caller.empty() ? "" : "  from " + without_line(share.caller);
        entry->second.places[without_line(share.where) + caller] += share.bytes;
      }
    }
  }
  return baseline;
}

std::string baseline_text(const Baseline& baseline) {
  Json devices = Json::object();
  for (const auto& [name, device] : baseline.devices)
    devices[name] = {
        {"peak_bytes", device.peak}, {"allocated_bytes", device.allocated}, {"places", device.places}};
  return Json{{"spillway_baseline", kVersion}, {"settings", json_of(baseline.settings)}, {"devices", devices}}
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::optional<Baseline> read_baseline(const std::string& path, std::string* error) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    *error = "'" + path + "' cannot be read: write it first, with --update-baseline";
    return std::nullopt;
  }
  const auto refuse = [&](const std::string& why) {
    *error = "'" + path + "' is no baseline that can be compared with (" + why +
             "): write it anew, with --update-baseline";
    return std::nullopt;
  };
  const Json json = Json::parse(file, nullptr, false);
  try {
    if (json.is_discarded()) throw std::runtime_error("it is not JSON");
    const int version = json.at("spillway_baseline").get<int>();
    if (version != kVersion)
      throw std::runtime_error("its version is " + std::to_string(version) + ", and this is for version " +
                               std::to_string(kVersion));
    Baseline baseline{read_settings(json.at("settings")), {}};
    for (const auto& [name, device] : json.at("devices").items())
      baseline.devices[name] = {device.at("peak_bytes").get<uint64_t>(),
                                device.at("allocated_bytes").get<uint64_t>(),
                                device.at("places").get<std::map<std::string, uint64_t>>()};
    return baseline;
  } catch (const Json::exception&) {  // its words are of JSON's types and of this code's
    return refuse("it is not what check writes");
  } catch (const std::exception& wrong) {
    return refuse(wrong.what());
  }
}

std::optional<Tolerance> parse_tolerance(const std::string& text) {
  if (text == "0") return Tolerance{0, 0};
  if (text.empty() || text.back() != '%') {
    const auto bytes = parse_size(text);
    return bytes ? std::optional(Tolerance{0, *bytes}) : std::nullopt;
  }
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size() - 1, percent);
  if (error != std::errc() || end != text.data() + text.size() - 1 || !(percent >= 0 && percent <= 1000))
    return std::nullopt;
  return Tolerance{percent / 100, 0};
}

Finding budget_not_judged(const std::string& device) {
  return {against_budget(device), Judged::kNot, kNotJudged, {}};
}

Finding baseline_not_judged(const std::string& device) {
  return {against_baseline(device), Judged::kNot, kNotJudged, {}};
}

Finding within_budget(const std::string& device, uint64_t peak, uint64_t budget) {
  return {against_budget(device),
          peak <= budget ? Judged::kPassed : Judged::kFailed,
          "peak " + size_text(peak) + " of the budget of " + size_text(budget) +
              (peak > budget ? ", " + size_text(peak - budget) + " over" : ""),
          {}};
}

Finding no_longer_used(const std::string& device) {
  return {against_baseline(device),
          Judged::kFailed,
          "the baseline has " + device +
              ", and this run did not use it: if that is meant, write the baseline "
              "anew, with --update-baseline",
          {}};
}

Finding within_baseline(const std::string& device, const DeviceBaseline& now, const DeviceBaseline* before,
                        const Tolerance& tolerance) {
  Finding finding{against_baseline(device), Judged::kFailed, "", {}};
  if (before == nullptr) {
    finding.text = "the baseline does not have " + device + ": write it anew, with --update-baseline";
    return finding;
  }
  finding.text = compared("whole card", now.peak, before->peak) + "; " +
                 compared("allocated", now.allocated, before->allocated);
  if (now.peak <= before->peak + tolerance.of(before->peak) &&
      now.allocated <= before->allocated + tolerance.of(before->allocated))
    finding.judged = Judged::kPassed;
  else
    finding.grown = grown(now, *before);
  return finding;
}

}  // namespace spillway::tools
