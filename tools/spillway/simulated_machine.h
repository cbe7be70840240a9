// What a program has to find in its environment to run on simulated GPUs: shared by every command that runs
// one.
//
// Thread-safety: plain values; the environment of this process is read, not changed. Errors: a text that says
// what is wrong and what to do.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "tools/spillway/command.h"
#include "tools/spillway/simulator_libraries.h"

namespace spillway::tools {

// Variables to set, by name; nothing: to unset.
using Environment = std::map<std::string, std::optional<std::string>>;

// What was asked for. A card or a file is a whole machine: what the environment says of another one is
// dropped, except for the profiles. Else what is not asked for stays as the environment says.
struct MachineOptions {
  std::optional<std::string> card, capacity, values;
  std::optional<std::string> profiles;  // what the driver is like: "typical,virtual-machine"
  std::optional<std::string> masks;     // where nobody computed them: "all" true, or "none"
  std::optional<int> gpus;
  std::string config;
  bool alone = false;  // shares no card with programs that run already
};

// The files of the machine that the programs share, and of their ledger, so that no program of another
// machine is asked for memory of "its" card. They have no name: programs find them through this process, or
// what this process becomes, and they are gone when the last of them is.
class MachineHolder {
 public:
  MachineHolder() = default;
  ~MachineHolder();
  MachineHolder(const MachineHolder&) = delete;
  MachineHolder& operator=(const MachineHolder&) = delete;

  // Makes them, or unless it is to be `alone` takes the one that SPILLWAY_SIM_MACHINE names already. False
  // and `error` where it cannot.
  bool open(bool alone, std::string* error);
  // For a process that becomes the program: what it becomes holds the files on.
  void keep_at_exec() const;
  const std::string& path() const { return path_; }
  // "": as the environment says.
  const std::string& ledger_path() const { return ledger_path_; }

 private:
  int descriptor_ = -1, ledger_ = -1;
  std::string path_, ledger_path_;
};

// The options `--profile`, `--values` and `--masks`.
void declare_machine(CLI::App& app, MachineOptions* machine);

// False and `error` where the simulator is not complete or an option is wrong.
bool describe_machine(const MachineOptions& options, const SimulatorLibraries& libraries,
                      const MachineHolder& shared, Environment* environment, std::string* error);

void apply(const Environment& environment);  // to this process

// Programs that this process starts or becomes find their own memory at the same addresses in every run,
// where the system allows it: PyTorch frees some things in the order of a hash of host addresses.
void repeat_host_addresses();

// Why a command could not be run, from errno, and what to do where that is plain.
std::string cannot_run_text(const std::string& program, int code);

// Becomes `command`. Returns an exit code, after saying why, only where it cannot be run; `name` is the
// sub-command's.
int replace_process(const char* name, const Words& command);

}  // namespace spillway::tools
