#include "tools/spillway/rehearse/run/run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/output_file.h"
#include "tools/spillway/library_folders.h"
#include "tools/spillway/rehearse/run/child.h"
#include "tools/spillway/rehearse/run/progress.h"
#include "tools/spillway/rehearse/run/workplace.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

std::string joined(const char* variable, const std::string& setting, char separator) {
  const char* held = std::getenv(variable);
  return held == nullptr || *held == '\0' ? setting : std::string(held) + separator + setting;
}

bool set_probe(const RunOptions& options, const SimulatorLibraries& libraries, const std::string& folder,
               Environment* environment, std::string* error) {
  const fs::path root = fs::path(libraries.folder).parent_path();
  const std::string probe = (root / "libspillway_rehearsal.so").string();
  if (!is_built_for_some_libtorch(root, "libspillway_rehearsal")) {
    *error = "the probe libspillway_rehearsal_<LibTorch's version>.so is missing in '" + root.string() +
             "': build the target 'spillway_command'";
    return false;
  }
  if (options.allocator == "spillway" && !is_built_for_some_libtorch(root, "libspillway_torch")) {
    *error = "--allocator spillway needs libspillway_torch_<LibTorch's version>.so in '" + root.string() +
             "': build the target 'spillway_command'";
    return false;
  }
  Environment& set = *environment;
  set["SPILLWAY_SIM_PLUGINS"] = joined("SPILLWAY_SIM_PLUGINS", probe, ':');
  set["SPILLWAY_SIM_REPORT"] = simulator_pattern(folder);
  set["SPILLWAY_REHEARSAL_RESULT"] = probe_pattern(folder);
  set["SPILLWAY_REHEARSAL_HISTORY"] = options.history ? history_pattern(folder) : "";
  set["SPILLWAY_REHEARSAL_STEPS"] = std::to_string(options.steps);
  set["SPILLWAY_REHEARSAL_CHECKPOINTING"] = options.checkpointing ? "1" : "0";
  set["SPILLWAY_REHEARSAL_ALLOCATOR"] = options.allocator;
  set["SPILLWAY_REHEARSAL_STREAM"] = options.trace.empty() ? "" : (fs::path(folder) / "stream-%p").string();
  if (options.allocator == "expandable") {
    for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
      set[variable] = joined(variable, "expandable_segments:True", ',');
  }
  return true;
}

// 0 or an errno. What is no file (a pipe, a device) takes the bytes too.
int copy_to(const std::string& from, const std::string& to) {
  std::error_code error;
  if (!fs::exists(to, error) || fs::is_regular_file(to, error)) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
    return error.value();
  }
  std::ifstream file(from, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return write_text(to, bytes);
}

std::string ends_early(const std::string& stream, const std::string& folder, const std::string& why) {
  return "--trace: '" + stream + "' ends early, its process could not write more to " + folder + ": " + why;
}

// The streams of allocations to where they were asked for: one file, or one a rank or process. A rank that
// started another program has two of them. The text says what could not be written.
std::string keep_streams(const std::string& folder, const std::string& target,
                         const std::vector<Observation>& processes) {
  const bool several = processes.size() > 1;
  std::set<std::string> taken;
  std::string unwritten;
  for (const Observation& process : processes) {
    const fs::path from = fs::path(folder) / ("stream-" + std::to_string(process.pid));
    std::error_code unknown;
    if (!fs::exists(from, unknown)) continue;
    std::string to = several ? target + "." + std::to_string(process.rank.value_or(process.pid)) : target;
    if (!taken.insert(to).second) to += "." + std::to_string(process.pid);
    if (const int error = copy_to(from, to); error != 0)
      unwritten = "--trace: '" + to + "' cannot be written: " + std::strerror(error);
    else if (!process.stream_error.empty())
      unwritten = ends_early(to, folder, process.stream_error);
  }
  return unwritten;
}

std::string end_of(const std::string& path) {
  constexpr std::streamoff kMost = 16 << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return "";
  file.seekg(std::max<std::streamoff>(0, size - kMost));
  return {std::istreambuf_iterator<char>(file), {}};
}

RunError stopped() {
  return {128 + stop_signal(), std::string("stopped by ") + ::strsignal(stop_signal())};
}

std::optional<Rehearsal> run_program(const RunOptions& options, RunError* error) {
  if (stop_signal() != 0) {
    *error = stopped();
    return std::nullopt;
  }
  const auto place_held = std::make_shared<const Workplace>();
  const Workplace& place = *place_held;
  if (place.path().empty()) {
    *error = {kCannotRun, "no folder for the results can be made: set TMPDIR to one that can be written"};
    return std::nullopt;
  }
  SimulatorLibraries libraries;
  Environment environment;
  MachineHolder shared;
  if (!find_simulator_libraries(&libraries, &error->text) ||
      !shared.open(options.machine.alone, &error->text) ||
      !describe_machine(options.machine, libraries, shared, &environment, &error->text) ||
      !set_probe(options, libraries, place.path(), &environment, &error->text)) {
    error->code = kUsageError;
    return std::nullopt;
  }
  const std::string log = options.keep_output ? place.path() + "/log" : "";
  const MachineRecord before = read_machine(shared.path());
  const auto start = std::chrono::steady_clock::now();
  Progress progress(place.path(), options.progress);
  const ChildEnd end = run_child(options.command, environment, log, [&progress] { progress.show(); });
  progress.clear();
  if (end.start_error != 0) {
    *error = {end.start_error == ENOENT ? kNotFound : kCannotRun,
              cannot_run_text(options.command.front(), end.start_error)};
    return std::nullopt;
  }
  if (stop_signal() != 0 && options.keep_output) {  // cut short, it says nothing for a series
    *error = stopped();
    return std::nullopt;
  }
  Rehearsal rehearsal;
  rehearsal.exit_code = end.exit_code;
  rehearsal.stopped_by = stop_signal();
  rehearsal.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rehearsal.processes = read_observations(place.path(), &rehearsal.damaged);
  find_histories(place.path(), &rehearsal.processes);
  const MachineRecord machine = read_machine(shared.path());
  add_unreported(machine, before, &rehearsal.processes);
  rehearsal.card = machine.card;
  rehearsal.cards = machine.cards;
  rehearsal.place = place_held;
  if (!log.empty()) rehearsal.log = end_of(log);
  if (!options.trace.empty())
    rehearsal.unwritten = keep_streams(place.path(), options.trace, rehearsal.processes);
  return rehearsal;
}

// Masks that hold everywhere are more than any values make of them where they exclude each other: the program
// may take more than it needs, or fail where two sizes contradict each other.
bool masks_may_have_decided(const RunOptions& options, const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  return !options.machine.masks && (fit == Fit::kProgramFailed || fit == Fit::kDoesNotFit) &&
         assumed_sizes_of(rehearsal) > 0 && stop_signal() == 0;
}

}  // namespace

std::optional<Rehearsal> rehearse_once(const RunOptions& options, RunError* error) {
  std::optional<Rehearsal> first = run_program(options, error);
  if (!first || !masks_may_have_decided(options, *first)) return first;
  RunOptions without = options;
  without.machine.masks = "none";
  without.keep_output = true;
  RunError none;
  std::optional<Rehearsal> second = run_program(without, &none);
  if (!second || decide(*second) == Fit::kProgramFailed) return first;
  second->with_all_masks = Ending{decide(*first), first->exit_code};
  return second;
}

}  // namespace spillway::tools
