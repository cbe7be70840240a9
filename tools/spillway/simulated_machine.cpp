#include "tools/spillway/simulated_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "processes/ledger.h"
#include "simulator/cards/cards.h"
#include "simulator/profiles/profiles.h"
#include "tools/spillway/configured_driver.h"
#include "tools/spillway/library_folders.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

// What the machine's programs will find in a variable, "" nothing.
std::string found_in(const Environment& environment, const char* name) {
  const auto set = environment.find(name);
  if (set != environment.end()) return set->second.value_or("");
  const char* held = std::getenv(name);
  return held == nullptr ? "" : held;
}

bool set_libraries(SimulatorLibraries libraries, Environment* environment, std::string* error) {
  const std::string list = found_in(*environment, "SPILLWAY_SIM_PROFILE");
  for (const std::string_view profile : profiles::names_in(list)) use_driver_of(profile, &libraries);
  const std::string config = found_in(*environment, "SPILLWAY_SIM_CONFIG");
  if (!config.empty()) use_driver_of(configured_driver(config), &libraries);
  if (libraries.folder.find_first_of(" :;") != std::string::npos) {
    *error = "the simulator's path '" + libraries.folder +
             "' has a space, a colon or a semicolon: LD_PRELOAD cannot name it. Move it, or set "
             "SPILLWAY_LIB_DIR to a link to it.";
    return false;
  }
  std::string preload;
  for (const std::string& path : libraries.preload) preload += (preload.empty() ? "" : ":") + path;
  (*environment)["LD_PRELOAD"] = put_in_front("LD_PRELOAD", preload);
  (*environment)["LD_LIBRARY_PATH"] = put_in_front("LD_LIBRARY_PATH", libraries.search);
  return true;
}

bool set_card(const std::string& id, Environment* environment, std::string* error) {
  const cards::Card* card = cards::find_card(id);
  if (card == nullptr) {
    *error = "--gpu: " + cards::unknown_card(id);
    return false;
  }
  (*environment)["SPILLWAY_SIM_CARD"] = card->id;
  return true;
}

bool set_profiles(const std::string& list, Environment* environment, std::string* error) {
  for (const std::string_view name : profiles::names_in(list)) {
    if (profiles::find(name) != nullptr) continue;
    *error = "--profile: " + profiles::unknown_profile(name);
    for (const profiles::Profile& profile : profiles::all())
      *error += "\n  " + std::string(profile.name) + ": " + std::string(profile.purpose());
    return false;
  }
  (*environment)["SPILLWAY_SIM_PROFILE"] = list;
  return true;
}

bool set_capacity(const std::string& text, Environment* environment, std::string* error) {
  const auto bytes = parse_size(text);
  if (!bytes || *bytes < (uint64_t{2} << 20)) {
    *error = "--capacity is '" + text + "': write " + kSizesAccepted + ", at least 2MiB";
    return false;
  }
  (*environment)["SPILLWAY_SIM_CAPACITY"] = std::to_string(*bytes);
  return true;
}

// No CPU kernel stands in for what is compiled for a GPU: PyTorch leaves torch.compile's graphs to its
// operators, and Triton interprets its own.
void leave_uncompiled(Environment* environment) {
  for (const char* name : {"TORCH_COMPILE_DISABLE", "TRITON_INTERPRET"})
    if (std::getenv(name) == nullptr) (*environment)[name] = "1";
}

bool set_kernels(const SimulatorLibraries& libraries, bool computes, Environment* environment,
                 std::string* error) {
  if (!libraries.kernels.empty()) (*environment)["SPILLWAY_SIM_KERNELS"] = libraries.kernels;
  if (computes && libraries.kernels.empty()) {
    *error = "--values compute needs libspillway_kernels_<LibTorch's version>.so in '" +
             std::filesystem::path(libraries.folder).parent_path().string() +
             "': build the target 'spillway_command'";
    return false;
  }
  if (computes) leave_uncompiled(environment);
  return true;
}

void drop_other_machine(Environment* environment) {
  for (const char* name :
       {"SPILLWAY_SIM_CARD", "SPILLWAY_SIM_CAPACITY", "SPILLWAY_SIM_DEVICES", "SPILLWAY_SIM_CONFIG"}) {
    if (std::getenv(name) != nullptr) (*environment)[name] = std::nullopt;
  }
}

// Through this process.
std::string path_of(int descriptor) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor);
}

// Whether the user names a ledger, or none: a path is that of another simulated machine.
bool names_ledger() {
  const char* named = std::getenv("SPILLWAY_LEDGER");
  return named != nullptr && *named != '\0' && *named != '/';
}

std::string values_of(const MachineOptions& options) {
  const char* held = std::getenv("SPILLWAY_SIM_VALUES");
  return options.values.value_or(held == nullptr ? "zeros" : held);
}

}  // namespace

MachineHolder::~MachineHolder() {
  for (const int descriptor : {descriptor_, ledger_})
    if (descriptor >= 0) ::close(descriptor);
}

bool MachineHolder::open(bool alone, std::string* error) {
  if (const char* held = std::getenv("SPILLWAY_SIM_MACHINE"); held != nullptr && !alone) {
    path_ = held;
    return true;
  }
  descriptor_ = ::memfd_create("spillway-machine", MFD_CLOEXEC);
  if (descriptor_ < 0) {
    *error = "no file for the machine that the programs share: " + std::generic_category().message(errno);
    return false;
  }
  path_ = path_of(descriptor_);
  if (names_ledger()) return true;
  ledger_ = ::memfd_create("spillway-ledger", MFD_CLOEXEC);
  std::string why_not = std::generic_category().message(errno);
  ledger_path_ = path_of(ledger_);
  if (ledger_ >= 0 && make_ledger(ledger_path_, &why_not)) return true;
  *error = "no file for the ledger that the programs share: " + why_not;
  return false;
}

void MachineHolder::keep_at_exec() const {
  for (const int descriptor : {descriptor_, ledger_})
    if (descriptor >= 0) ::fcntl(descriptor, F_SETFD, 0);
}

void declare_machine(CLI::App& app, MachineOptions* machine) {
  app.add_option("--profile", machine->profiles,
                 "What the driver and the machine are like, such as typical or a list such as "
                 "typical,virtual-machine; a wrong name shows all");
  app.add_option("--values", machine->values,
                 "What the program reads from a device. zeros, random: kernels do nothing, at any size, and "
                 "reads give zeros or small numbers of chance; compute: true values, by CPU kernels")
      ->check(CLI::IsMember({"zeros", "random", "compute"}));
  app.add_option("--masks", machine->masks,
                 "What a mask that no kernel computed is taken for where it decides a size: all (true "
                 "everywhere, the default) or none")
      ->check(CLI::IsMember({"all", "none"}));
}

bool describe_machine(const MachineOptions& options, const SimulatorLibraries& libraries,
                      const MachineHolder& shared, Environment* environment, std::string* error) {
  if (options.card || !options.config.empty()) drop_other_machine(environment);
  if (options.card && !set_card(*options.card, environment, error)) return false;
  if (options.profiles && !set_profiles(*options.profiles, environment, error)) return false;
  if (options.capacity && !set_capacity(*options.capacity, environment, error)) return false;
  if (options.gpus) (*environment)["SPILLWAY_SIM_DEVICES"] = std::to_string(*options.gpus);
  if (options.values) (*environment)["SPILLWAY_SIM_VALUES"] = *options.values;
  if (options.masks) (*environment)["SPILLWAY_SIM_MASKS"] = *options.masks;
  if (!options.config.empty()) {  // absolute: the command may change folder
    (*environment)["SPILLWAY_SIM_CONFIG"] = std::filesystem::absolute(options.config).string();
  }
  // Python's sets of names have one order in every run.
  if (std::getenv("PYTHONHASHSEED") == nullptr) (*environment)["PYTHONHASHSEED"] = "0";
  (*environment)["SPILLWAY_SIM_MACHINE"] = shared.path();
  if (!shared.ledger_path().empty()) (*environment)["SPILLWAY_LEDGER"] = shared.ledger_path();
  return set_libraries(libraries, environment, error) &&
         set_kernels(libraries, values_of(options) == "compute", environment, error);
}

void apply(const Environment& environment) {
  for (const auto& [name, value] : environment) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
}

void repeat_host_addresses() {
  constexpr unsigned long kAsk = 0xffffffff;
  const int now = ::personality(kAsk);
  if (now != -1) ::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE);
}

std::string cannot_run_text(const std::string& program, int code) {
  const std::string text = "cannot run '" + program + "': " + std::generic_category().message(code);
  return program.ends_with(".py") ? text + "; a Python file is run by: -- python " + program : text;
}

int replace_process(const char* name, const Words& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int code = errno;
  return fail(code == ENOENT ? kNotFound : kCannotRun,
              std::string(name) + ": " + cannot_run_text(command.front(), code));
}

}  // namespace spillway::tools
