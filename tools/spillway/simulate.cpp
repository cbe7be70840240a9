// `spillway simulate`: replaces itself by a command that finds the simulator in place of the CUDA libraries.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tools/spillway/command.h"
#include "tools/spillway/simulator_libraries.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

struct Options {
  std::string capacity, values = "zeros", config;
  int gpus = 1;
  CLI::Option *capacity_given = nullptr, *gpus_given = nullptr, *values_given = nullptr;
  Words command;
};

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}

void put_in_front(const char* name, const std::string& value) {
  const char* held = std::getenv(name);
  set(name, held != nullptr && *held != '\0' ? value + ":" + held : value);
}

bool set_libraries(const SimulatorLibraries& libraries, std::string* error) {
  if (libraries.folder.find_first_of(" :;") != std::string::npos) {
    *error = "the simulator's path '" + libraries.folder +
             "' has a space, a colon or a semicolon: LD_PRELOAD cannot name it. Move it, or set "
             "SPILLWAY_LIB_DIR to a "
             "link to it.";
    return false;
  }
  std::string preload;
  for (const std::string& path : libraries.preload) preload += (preload.empty() ? "" : ":") + path;
  put_in_front("LD_PRELOAD", preload);
  put_in_front("LD_LIBRARY_PATH", libraries.folder);
  return true;
}

// What was not given keeps the value that the environment or the file says.
bool set_machine(const Options& options, std::string* error) {
  if (options.capacity_given->count() > 0) {
    const auto bytes = parse_size(options.capacity);
    if (!bytes || *bytes < (uint64_t{2} << 20)) {
      *error = "--capacity is '" + options.capacity + "': write " + kSizesAccepted + ", at least 2MiB";
      return false;
    }
    set("SPILLWAY_SIM_CAPACITY", std::to_string(*bytes));
  }
  if (options.gpus_given->count() > 0) set("SPILLWAY_SIM_DEVICES", std::to_string(options.gpus));
  if (options.values_given->count() > 0) set("SPILLWAY_SIM_VALUES", options.values);
  if (!options.config.empty()) {
    set("SPILLWAY_SIM_CONFIG",
        std::filesystem::absolute(options.config).string());  // the command may change folder
  }
  return true;
}

bool set_kernels(const SimulatorLibraries& libraries, std::string* error) {
  if (libraries.kernels.empty()) {
    *error = "--values compute needs libspillway_kernels.so in '" +
             std::filesystem::path(libraries.folder).parent_path().string() +
             "': build the target 'spillway_kernels'";
    return false;
  }
  set("SPILLWAY_SIM_KERNELS", libraries.kernels);
  return true;
}

int replace_process(const Words& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int code = errno;
  return fail(code == ENOENT ? kNotFound : kCannotRun,
              "simulate: cannot run '" + command.front() + "': " + std::generic_category().message(code));
}

int simulate(const Options& options) {
  if (options.capacity_given->count() == 0 && options.config.empty()) {
    return fail(kUsageError,
                "simulate: give the card's memory with --capacity, such as --capacity 8GiB, or a --config");
  }
  std::string error;
  SimulatorLibraries libraries;
  const bool ready = set_machine(options, &error) && find_simulator_libraries(&libraries, &error) &&
                     set_libraries(libraries, &error) &&
                     (options.values != "compute" || set_kernels(libraries, &error));
  if (!ready) return fail(kUsageError, "simulate: " + error);
  return replace_process(options.command);
}

std::function<int()> declare(CLI::App& app, const Words& command) {
  auto options = std::make_shared<Options>();
  options->command = command;
  if (const char* values = std::getenv("SPILLWAY_SIM_VALUES")) options->values = values;
  options->capacity_given =
      app.add_option("--capacity", options->capacity, std::string("Memory of each card: ") + kSizesAccepted);
  options->gpus_given = app.add_option("--gpus", options->gpus, "Cards")->check(CLI::Range(1, 16));
  options->values_given =
      app.add_option("--values", options->values,
                     "zeros: kernels do nothing and reads give zeros, at any size; compute: true "
                     "values, computed by CPU kernels")
          ->check(CLI::IsMember({"zeros", "compute"}));
  app.add_option("--config", options->config, "TOML file of the simulated machine")->check(CLI::ExistingFile);
  return [options] { return simulate(*options); };
}

}  // namespace

Command simulate_command() {
  return {"simulate", "Run a command on simulated GPUs",
          "spillway simulate --capacity 8GiB -- python train.py", true, declare};
}

}  // namespace spillway::tools
