// `spillway simulate`: replaces itself by a command that finds the simulator in place of the CUDA libraries.
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/simulated_machine.h"
#include "tools/spillway/simulator_libraries.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

int simulate(const MachineOptions& machine, const Words& command) {
  if (!machine.capacity && machine.config.empty()) {
    return fail(kUsageError,
                "simulate: give the card's memory with --capacity, such as --capacity 8GiB, or a --config");
  }
  std::string error;
  SimulatorLibraries libraries;
  Environment environment;
  const bool ready = find_simulator_libraries(&libraries, &error) &&
                     describe_machine(machine, libraries, &environment, &error);
  if (!ready) return fail(kUsageError, "simulate: " + error);
  apply(environment);
  repeat_host_addresses();
  return replace_process("simulate", command);
}

std::function<int()> declare(CLI::App& app, const Words& command) {
  auto machine = std::make_shared<MachineOptions>();
  app.add_option("--capacity", machine->capacity, std::string("Memory of each card: ") + kSizesAccepted);
  app.add_option("--gpus", machine->gpus, "Cards")->check(CLI::Range(1, 16));
  app.add_option("--values", machine->values,
                 "zeros: kernels do nothing and reads give zeros, at any size; compute: true "
                 "values, computed by CPU kernels")
      ->check(CLI::IsMember({"zeros", "compute"}));
  app.add_option("--config", machine->config, "TOML file of the simulated machine")->check(CLI::ExistingFile);
  return [machine, command] { return simulate(*machine, command); };
}

}  // namespace

Command simulate_command() {
  return {"simulate", "Run a command on simulated GPUs",
          "spillway simulate --capacity 8GiB -- python train.py", true, declare};
}

}  // namespace spillway::tools
