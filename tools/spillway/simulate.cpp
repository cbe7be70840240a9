// `spillway simulate`: replaces itself by a command that finds the simulator in place of the CUDA libraries.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/command_line/option_checks.h"
#include "simulator/cards/cards.h"
#include "tools/spillway/command.h"
#include "tools/spillway/simulated_machine.h"
#include "tools/spillway/simulator_libraries.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

bool environment_describes_card() {
  return std::getenv("SPILLWAY_SIM_CAPACITY") != nullptr || std::getenv("SPILLWAY_SIM_CARD") != nullptr ||
         std::getenv("SPILLWAY_SIM_CONFIG") != nullptr;
}

int simulate(const MachineOptions& machine, const Words& command) {
  if (!machine.card && !machine.capacity && machine.config.empty() && !environment_describes_card()) {
    return fail(kUsageError,
                "simulate: say which card with --gpu, such as --gpu a100-40gb (--list-gpus shows all), or "
                "how much memory "
                "with --capacity, such as --capacity 8GiB, or give a --config");
  }
  std::string error;
  SimulatorLibraries libraries;
  Environment environment;
  MachineHolder shared;
  const bool ready = find_simulator_libraries(&libraries, &error) && shared.open(machine.alone, &error) &&
                     describe_machine(machine, libraries, shared, &environment, &error);
  if (!ready) return fail(kUsageError, "simulate: " + error);
  shared.keep_at_exec();
  apply(environment);
  repeat_host_addresses();
  return replace_process("simulate", command);
}

void list_cards() {
  std::printf("%-14s%-24s%14s%7s%5s%8s\n", "--gpu", "name", "memory", "sm", "SMs", "GB/s");
  for (const cards::Card& card : cards::cards())
    std::printf("%-14s%-24s%10.2f GiB%5d.%d%5d%8.0f\n", std::string(card.id).c_str(),
                std::string(card.name).c_str(), static_cast<double>(card.capacity_bytes) / (1 << 30),
                card.major, card.minor, card.multiprocessors, cards::memory_gbs(card));
}

std::function<int()> declare_simulate(CLI::App& app, const Words& command) {
  auto machine = std::make_shared<MachineOptions>();
  app.add_option("--gpu", machine->card, "The kind of card, such as a100-40gb; --list-gpus shows all");
  app.add_flag_callback(
      "--list-gpus",
      [] {
        list_cards();
        throw CLI::Success();
      },
      "Show the kinds of cards and end");
  app.add_option("--capacity", machine->capacity,
                 std::string("Memory of each card, whatever its kind: ") + kSizesAccepted);
  app.add_option("--gpus", machine->gpus, "Cards")->check(CLI::Range(1, 16));
  declare_machine(app, machine.get());
  app.add_option("--config", machine->config, "TOML file of the simulated machine")->check(regular_file());
  return [machine, command] { return simulate(*machine, command); };
}

}  // namespace

Command simulate_command() {
  return {"simulate", "Run a command on simulated GPUs",
          "spillway simulate --gpu a100-40gb -- python train.py", true, declare_simulate};
}

}  // namespace spillway::tools
