#include "tools/spillway/rehearse/judge/observation.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kProbe = "probe-", kSimulator = "simulator-", kHistory = "history-";

uint64_t number(const Json& json, const char* name) {
  return json.at(name).get<uint64_t>();
}

std::vector<Held> read_held(const Json& list) {
  std::vector<Held> held;
  for (const Json& one : list) {
    Held entry{std::nullopt, number(one, "bytes"), number(one, "blocks")};
    if (!one.at("site").is_null()) entry.place = one.at("site").get<uint32_t>();
    held.push_back(entry);
  }
  return held;
}

std::vector<Point> read_points(const Json& list) {
  std::vector<Point> points;
  for (const Json& one : list)
    points.push_back({one.at(0).get<uint64_t>(), one.at(1).get<uint64_t>(), one.at(2).get<uint64_t>()});
  return points;
}

AllocatorView read_view(const Json& json) {
  AllocatorView view;
  view.events = number(json, "events");
  view.peak_allocated = number(json, "peak_allocated_bytes");
  view.peak_reserved = number(json, "peak_reserved_bytes");
  view.peak_step = number(json, "peak_step");
  view.segments_freed = number(json, "segments_freed");
  view.retries = number(json, "retries");
  view.failures = number(json, "failures");
  view.stream_hash = json.at("stream_hash").get<std::string>();
  view.held_at_peak = read_held(json.at("held_at_peak"));
  const Json& kinds = json.at("kinds_at_peak");
  view.parameters = number(kinds, "parameters");
  view.gradients = number(kinds, "gradients");
  view.optimizer_state = number(kinds, "optimizer_state");
  view.timeline = read_points(json.at("timeline"));
  view.steps = read_points(json.at("steps"));
  return view;
}

Failure read_failure(const Json& json) {
  Failure failure;
  failure.device = json.at("device").get<int>();
  failure.requested = number(json, "requested_bytes");
  failure.allocated = number(json, "allocated_bytes");
  failure.reserved = number(json, "reserved_bytes");
  failure.device_free = number(json, "device_free_bytes");
  failure.limit = number(json, "limit_bytes");
  failure.step = number(json, "step");
  failure.place = json.at("site").get<uint32_t>();
  failure.held = read_held(json.at("held"));
  return failure;
}

Place read_place(const Json& json) {
  Place place{json.at("label").get<std::string>(), {}};
  for (const Json& frame : json.at("frames"))
    place.frames.push_back({frame.at("function").get<std::string>(), frame.at("file").get<std::string>(),
                            number(frame, "line")});
  return place;
}

ReadKind read_kind(const std::string& name) {
  return name == "shape"    ? ReadKind::kShape
         : name == "value"  ? ReadKind::kValue
         : name == "bulk"   ? ReadKind::kBulk
         : name == "number" ? ReadKind::kNumber
         : name == "branch" ? ReadKind::kBranch
                            : ReadKind::kCopy;
}

void read_probe(const Json& json, Observation* out) {
  if (json.at("spillway_rehearsal").get<int>() != 1) throw std::runtime_error("written by another version");
  out->has_probe = true;
  if (!json.at("rank").is_null()) out->rank = json.at("rank").get<int64_t>();
  out->has_python = json.at("python").get<bool>();
  out->expandable_segments = json.at("expandable_segments").get<bool>();
  out->splits_are_limited = json.at("splits_are_limited").get<bool>();
  out->complete = json.at("complete").get<bool>();
  out->ended_by_steps = json.at("ended_by_steps").get<bool>();
  out->problem = json.at("problem").get<std::string>();
  out->stream_error = json.at("stream_error").get<std::string>();
  out->allocator = json.at("allocator").get<std::string>();
  out->architectures = json.at("architectures").get<std::string>();
  out->steps = number(json, "optimizer_steps");
  out->failure_count = number(json, "failure_count");
  out->checkpointed_models = number(json, "checkpointed_models");
  for (const Json& failure : json.at("failures")) out->failures.push_back(read_failure(failure));
  const Json& uncaught = json.at("uncaught");
  out->uncaught_type = uncaught.at("type").get<std::string>();
  out->uncaught_message = uncaught.at("message").get<std::string>();
  out->uncaught_out_of_memory = uncaught.at("out_of_memory").get<bool>();
  out->uncaught_names_memory = uncaught.at("names_memory").get<bool>();
  for (const Json& read : json.at("reads"))
    out->reads.push_back({read.at("site").get<uint32_t>(), read_kind(read.at("kind").get<std::string>()),
                          number(read, "count"), number(read, "bytes")});
  for (const auto& [name, place] : json.at("sites").items())
    out->places[static_cast<uint32_t>(std::stoul(name))] = read_place(place);
  for (const Json& device : json.at("devices")) {
    const int ordinal = device.at("device").get<int>();
    out->devices[ordinal].ordinal = ordinal;
    out->devices[ordinal].allocator = read_view(device);
  }
}

void read_simulator(const Json& json, Observation* out) {
  out->values = json.at("values").get<std::string>();
  for (const Json& reads : json.at("host_reads"))
    out->driver_reads.push_back(
        {reads.at("site").get<std::string>(), number(reads, "small_copies"), number(reads, "bulk_copies")});
  out->assumed_sizes = number(json, "assumed_sizes");
  for (const auto& [kernel, launches] : json.at("uncomputed").items())
    out->uncomputed[kernel] = launches.get<uint64_t>();
  out->other_runtime = json.at("other_runtime").get<std::string>();
  for (const Json& device : json.at("devices")) {
    CardView card;
    if (!device.at("card").is_null()) card.card = device.at("card").get<std::string>();
    card.capacity = number(device, "capacity_bytes");
    card.peak = number(device, "peak_bytes");
    card.allocator_at_peak = number(device, "allocator_at_peak_bytes");
    card.outside_peak = number(device, "outside_peak_bytes");
    card.physical = device.at("physical").get<int>();
    card.machine_peak = number(device, "machine_peak_bytes");
    card.refused = number(device, "refused_requests");
    for (const auto& [label, count] : device.at("refused_parts").items())
      card.refused_parts[label] = count.get<uint64_t>();
    if (const Json& first = device.at("first_refusal"); first.is_object()) {
      card.first_refused_bytes = number(first, "asked_bytes");
      card.first_refused_free = number(first, "free_bytes");
    }
    for (const auto& [label, bytes] : device.at("modelled_at_peak").items())
      card.modelled_at_peak[label] = bytes.get<uint64_t>();
    const int ordinal = device.at("ordinal").get<int>();
    out->devices[ordinal].ordinal = ordinal;
    out->devices[ordinal].card = std::move(card);
  }
}

// "probe-4711.json" → 4711 for the prefix "probe-".
std::optional<int64_t> process_of(const std::string& file, std::string_view prefix) {
  if (!file.starts_with(prefix) || !file.ends_with(".json")) return std::nullopt;
  const std::string digits = file.substr(prefix.size(), file.size() - prefix.size() - 5);
  if (digits.empty() || digits.size() > 12 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

template <typename Reader>
void read_file(const fs::path& path, Reader reader, Observation* out, std::vector<std::string>* damaged) {
  const Observation before = *out;
  try {
    std::ifstream file(path, std::ios::binary);
    reader(Json::parse(file), out);
  } catch (const std::exception& error) {
    *out = before;
    damaged->push_back(path.filename().string() + ": " + error.what());
  }
}

}  // namespace

std::string probe_pattern(const std::string& folder) {
  return (fs::path(folder) / (std::string(kProbe) + "%p.json")).string();
}

std::string history_pattern(const std::string& folder) {
  return (fs::path(folder) / (std::string(kHistory) + "%p")).string();
}

void find_histories(const std::string& folder, std::vector<Observation>* processes) {
  std::error_code ignored;
  for (Observation& process : *processes) {
    const fs::path file = fs::path(folder) / (std::string(kHistory) + std::to_string(process.pid));
    if (fs::exists(file, ignored)) process.history = file.string();
  }
}

std::string simulator_pattern(const std::string& folder) {
  return (fs::path(folder) / (std::string(kSimulator) + "%p.json")).string();
}

bool Observation::used_devices() const {
  return std::any_of(devices.begin(), devices.end(), [](const auto& device) {
    const auto& [ordinal, seen] = device;
    return (seen.allocator && seen.allocator->events > 0) ||
           (seen.card && (seen.card->peak > 0 || seen.card->refused > 0));
  });
}

uint64_t Observation::peak_of(int device) const {
  const auto found = devices.find(device);
  if (found == devices.end()) return 0;
  const DeviceObservation& seen = found->second;
  uint64_t peak = 0;
  if (seen.card) peak = seen.card->peak;
  if (seen.allocator) peak = std::max(peak, seen.allocator->peak_reserved);
  return peak;
}

std::vector<Observation> read_observations(const std::string& folder, std::vector<std::string>* damaged) {
  std::map<int64_t, Observation> by_process;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto probed = process_of(name, kProbe), simulated = process_of(name, kSimulator);
    const auto process = probed ? probed : simulated;
    if (!process) continue;
    Observation& seen = by_process[*process];
    seen.pid = *process;
    read_file(entry.path(), probed ? read_probe : read_simulator, &seen, damaged);
  }
  std::vector<Observation> all;
  for (auto& [process, seen] : by_process)
    if (seen.used_devices() || !seen.problem.empty() || !seen.uncaught_type.empty() ||
        !seen.other_runtime.empty())
      all.push_back(std::move(seen));
  std::stable_sort(all.begin(), all.end(), [](const Observation& a, const Observation& b) {
    return a.rank.value_or(-1) < b.rank.value_or(-1);
  });
  return all;
}

}  // namespace spillway::tools
