#include "tools/spillway/replay/input/input.h"

#include <fstream>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/replay/input/rehearsed_stream.h"
#include "tools/spillway/report/trace/read_history.h"

namespace spillway::tools {
namespace {

std::string start_of(const std::string& path) {
  std::string start(32, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  return start;
}

std::optional<ReplayInput> from_history(const MemoryHistory& history, const std::string& path,
                                        std::string* error) {
  const auto found = look_into(history, std::nullopt);
  if (!found || found->allocations == 0) {
    *error = path + ": holds no history of requests" + kWhoWritesOne;
    return std::nullopt;
  }
  const DeviceHistory& device = history.devices.at(found->device);
  ReplayInput input;
  input.requests = requests_of(device, found->failure_event.value_or(device.events.size()));
  input.alloc_conf = alloc_conf_of(history);
  input.settings = parse_torch_settings(input.alloc_conf);
  input.device = found->device;
  input.incomplete = history.incomplete;
  input.unknown_bytes = device.unknown_bytes;
  if (found->failure && found->holdings.free && !history.requests_only)
    input.capacity = found->holdings.reserved + *found->holdings.free;
  return input;
}

}  // namespace

std::string alloc_conf_of(const MemoryHistory& history) {
  for (const char* name : kAllocConfNames) {
    const auto found = history.settings.find(name);
    if (found != history.settings.end() && !found->second.empty()) return found->second;
  }
  return "";
}

TorchSettings torch_settings_of(const MemoryHistory& history) {
  return parse_torch_settings(alloc_conf_of(history));
}

std::optional<ReplayInput> read_replay_input(const std::string& path, std::string* error) {
  const std::string start = start_of(path);
  if (begins_as_stream(start)) {
    auto requests = read_stream(path, error);
    if (!requests) return std::nullopt;
    ReplayInput input;
    input.kind = "Stream of requests";
    input.requests = std::move(*requests);
    return input;
  }
  if (begins_as_rehearsed_stream(start)) {
    auto read = read_rehearsed_stream(path, error);
    if (!read) return std::nullopt;
    ReplayInput input;
    input.kind = "Stream of a rehearsal";
    input.requests = std::move(read->requests);
    input.device = read->device;
    return input;
  }
  auto history = read_history(path, error);
  if (!history) return std::nullopt;
  auto input = from_history(*history, path, error);
  if (!input) return std::nullopt;
  input->kind = history_file_name(history_file(path));
  history->devices.clear();
  input->origin = std::move(*history);
  return input;
}

}  // namespace spillway::tools
