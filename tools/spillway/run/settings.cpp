#include "tools/spillway/run/settings.h"

#include <algorithm>
#include <filesystem>

#include "allocator/tiers/file/page_file.h"
#include "strategies/core/environment.h"
#include "tools/spillway/units.h"
#include "trace/writer.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

bool check_trace(const std::string& trace, std::string* error) {
  if (trace.empty()) return true;
  std::error_code unknown;
  const fs::path path = fs::absolute(trace, unknown), folder = path.parent_path();
  if (!fs::is_directory(folder, unknown))
    *error = "--trace: there is no folder '" + folder.string() + "'";
  else if (const std::string obstacle = trace::Trace::obstacle(path); !obstacle.empty())
    *error = "--trace: " + obstacle;
  else
    return true;
  return false;
}

bool check_size(const char* option, const std::string& text, std::string* error) {
  const auto bytes = parse_size(text);
  if (bytes && *bytes >= (uint64_t{2} << 20)) return true;
  *error = std::string(option) + " is '" + text + "': write " + kSizesAccepted + ", at least 2MiB";
  return false;
}

bool check_limit(const RunSettings& settings, std::string* error) {
  for (const auto& [name, value] :
       {std::pair{"--limit", &settings.limit}, std::pair{"--reserve", &settings.reserve}}) {
    if (value->empty()) continue;
    if (settings.mode == "observe") {
      *error = std::string(name) + ": in --mode observe nothing is refused: take --mode rescue or replace";
      return false;
    }
    uint64_t bytes = 0;
    const bool is_none = parse_bytes(*value, &bytes, error) && bytes == 0;
    if (is_none && value == &settings.reserve) continue;
    if (!check_size(name, *value, error)) return false;
  }
  const auto limit = parse_size(settings.limit);
  if (!limit || settings.reserve.empty() || parse_size(settings.reserve) < limit) return true;
  *error = "--reserve must be less than --limit, or PyTorch could have nothing";
  return false;
}

bool check_guarantee(const RunSettings& settings, std::string* error) {
  if (settings.guarantee.empty()) return true;
  if (settings.mode == "observe") {
    *error = "--guarantee: in --mode observe other processes are given nothing anyway";
    return false;
  }
  if (!check_size("--guarantee", settings.guarantee, error)) return false;
  const auto limit = parse_size(settings.limit);
  if (!limit || parse_size(settings.guarantee) <= limit) return true;
  *error = "--guarantee is more than --limit: the process could never hold so much";
  return false;
}

bool check_spilling(const RunSettings& settings, std::string* error) {
  double unused = 0;
  std::string why;
  for (const auto& [name, value] :
       {std::pair{"--host-budget", &settings.host_budget}, std::pair{"--peer-budget", &settings.peer_budget},
        std::pair{"--max-slowdown", &settings.max_slowdown}}) {
    if (value->empty() || settings.mode == "replace") continue;
    *error = std::string(name) + " is of Spillway's own allocator: add --mode replace";
    return false;
  }
  uint64_t bytes = 0;
  if (!parse_bytes(settings.host_budget, &bytes, &why)) {
    *error = "--host-budget: " + why;
    return false;
  }
  if (!parse_bytes(settings.peer_budget, &bytes, &why)) {
    *error = "--peer-budget: " + why;
    return false;
  }
  if (settings.max_slowdown.empty() || parse_slowdown(settings.max_slowdown, &unused, &why)) return true;
  *error = "--max-slowdown: " + why;
  return false;
}

// The file is made here once, so that a folder that cannot be used is known before the program starts.
bool check_nvme(const RunSettings& settings, std::string* error) {
  std::string folder, why;
  uint64_t bytes = 0;
  if (settings.nvme.empty()) return true;
  if (settings.mode == "observe")
    why = "in --mode observe nothing is moved";
  else if (parse_nvme(settings.nvme, &folder, &bytes, &why))
    PageFile::open(folder, bytes, &why);
  if (!why.empty()) *error = "--nvme: " + why;
  return why.empty();
}

bool check_choices(const RunSettings& settings, std::string* error) {
  for (const RunOption& option : run_options()) {
    const auto* field = std::get_if<std::string RunSettings::*>(&option.field);
    if (field == nullptr || option.choices.empty()) continue;
    if (std::ranges::find(option.choices, settings.**field) != option.choices.end()) continue;
    *error = std::string("--") + option.name + " is '" + settings.**field + "', and must be one of";
    for (const std::string& choice : option.choices) *error += " " + choice;
    return false;
  }
  return true;
}

bool check_stacks(const std::string& stacks, std::string* error) {
  std::optional<uint64_t> unused;
  std::string why;
  if (stacks.empty() || parse_stacks(stacks, &unused, &why)) return true;
  *error = "--stacks: " + why;
  return false;
}

bool check_strategies(const std::string& names, std::string* error) {
  spillway::Environment unused;
  if (parse_strategies(names, &unused, error)) return true;
  *error = "--strategies" + error->substr(std::min(error->find(':'), error->size()));
  return false;
}

}  // namespace

const std::vector<RunOption>& run_options() {
  static const std::vector<RunOption> options{
      {"mode",
       &RunSettings::mode,
       "observe: only count; rescue (default): the program's memory stays as it is, and room is made by what "
       "caches hold; replace: Spillway becomes PyTorch's allocator too",
       {"observe", "rescue", "replace"}},
      {"limit",
       &RunSettings::limit,
       std::string("What the program may take of each device, by any library: ") + kSizesAccepted,
       {}},
      {"reserve",
       &RunSettings::reserve,
       "What PyTorch's requests leave of each device to other libraries' (NCCL, cuBLAS), which come late",
       {}},
      {"guarantee",
       &RunSettings::guarantee,
       "What other processes' needs leave this program of each device, also of what it only caches",
       {}},
      {"strategies",
       &RunSettings::strategies,
       "Names by commas of the strategies that may be used, or none; all without it",
       {}},
      {"host-budget",
       &RunSettings::host_budget,
       std::string("With --mode replace, pinned host memory for what is moved off the devices: ") +
           kSizesAccepted + "; half of what is available without it",
       {}},
      {"peer-budget",
       &RunSettings::peer_budget,
       "With --mode replace, memory of each other device for what is moved off one: as --host-budget; "
       "without "
       "it three quarters of each that nobody uses",
       {}},
      {"nvme",
       &RunSettings::nvme,
       "DIR:SIZE, a folder on a fast disk and what may be written there, of each process: for blocks that "
       "the "
       "program registers (spillway_block_add) and does not use at the moment",
       {}},
      {"max-slowdown",
       &RunSettings::max_slowdown,
       "With --mode replace, how many times as long the program may take because of what was moved there: "
       "1.5, "
       "or none for no bound; what would pass it is used only where nothing else gives enough; without it 10 "
       "on a card, and no bound on the simulated one",
       {},
       true},
      {"trace",
       &RunSettings::trace,
       "File for the report; %p is the process id. Without it spillway-%p.spill, kept where a failure was "
       "met",
       {}},
      {"stacks",
       &RunSettings::stacks,
       "Which allocations have their line in the report: all, none, or a size: one in so many bytes; 1MiB "
       "without it",
       {}},
      {"on-oom-command",
       &RunSettings::on_oom_command,
       "Run by /bin/sh, once, when a failure is not rescued; SPILLWAY_OOM_PROCESS, _TRACE, _PAGE and "
       "_VERDICT "
       "say which",
       {}},
      {"quiet", &RunSettings::quiet, "Without the line at the end", {}},
  };
  return options;
}

bool check(const RunSettings& settings, std::string* error) {
  return check_choices(settings, error) && check_strategies(settings.strategies, error) &&
         check_trace(settings.trace, error) && check_limit(settings, error) &&
         check_guarantee(settings, error) && check_stacks(settings.stacks, error) &&
         check_spilling(settings, error) && check_nvme(settings, error);
}

}  // namespace spillway::tools
