#include "tools/spillway/rehearse/options.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "base/command_line/option_checks.h"
#include "tools/spillway/suggest.h"
#include "tools/spillway/units.h"

namespace spillway::tools {

void declare_run(CLI::App& app, const Words& command, RunOptions* run) {
  run->command = command;
  run->machine.alone = true;
  run->progress = ::isatty(STDERR_FILENO) == 1;
  app.add_option("--gpu", run->machine.card,
                 "The kind of card, such as a100-40gb; 'spillway simulate --list-gpus' shows all");
  app.add_option("--capacity", run->machine.capacity,
                 std::string("Memory of each card, whatever its kind: ") + kSizesAccepted);
  app.add_option("--gpus", run->machine.gpus, "Cards")->check(CLI::Range(1, 16));
  app.add_option("--steps", run->steps, "End the program, with success, after this many optimizer steps")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_option("--allocator", run->allocator,
                 "PyTorch's allocator: native; expandable, with its expandable segments; spillway");
  declare_machine(app, &run->machine);
  app.add_option("--trace", run->trace, "Write the stream of allocations to this file");
  app.add_option("--config", run->machine.config, "TOML file of the simulated machine")
      ->check(regular_file());
}

Words split_list(const std::string& text) {
  Words parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    if (end > from) parts.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return parts;
}

std::string wrong_allocator(const std::string& name) {
  const std::vector<std::string> known{"native", "expandable", "spillway"};
  if (std::find(known.begin(), known.end(), name) != known.end()) return "";
  return "--allocator: there is no '" + name + "': native, expandable and spillway are known." +
         did_you_mean(name, known);
}

std::string missing_machine(const MachineOptions& machine) {
  if (machine.card || machine.capacity || !machine.config.empty()) return "";
  return "say which card with --gpu, such as --gpu a100-40gb, or how much memory each has with --capacity, "
         "such as "
         "--capacity 24GiB, or give a --config";
}

}  // namespace spillway::tools
