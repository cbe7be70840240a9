// `spillway rehearse`: runs an unmodified program on simulated GPUs and says whether it fits.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/explain.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/report_text.h"
#include "tools/spillway/rehearse/run.h"

namespace spillway::tools {
namespace {

struct RehearseOptions {
  RunOptions run;
  bool once = false;
};

int rehearse(const RehearseOptions& options) {
  if (const std::string missing = missing_machine(options.run.machine); !missing.empty())
    return fail(kUsageError, "rehearse: " + missing);
  RunError error;
  const auto rehearsal = rehearse_once(options.run, &error);
  if (!rehearsal) return fail(error.code, "rehearse: " + error.text);
  std::vector<Counterfactual> others;
  const Fit fit = decide(*rehearsal);
  if (!options.once && (fit == Fit::kDoesNotFit || fit == Fit::kWentOn))
    others = run_counterfactuals(options.run, *rehearsal);
  std::fputs(report_text(options.run, *rehearsal, others).c_str(), stdout);
  return exit_code_of(*rehearsal);
}

std::function<int()> declare(CLI::App& app, const Words& command) {
  auto options = std::make_shared<RehearseOptions>();
  declare_run(app, command, &options->run);
  app.add_flag("--once", options->once, "When it does not fit, do not run it again to find out what would");
  return [options] { return rehearse(*options); };
}

}  // namespace

Command rehearse_command() {
  return {"rehearse", "Say whether an unmodified program fits a card, without one",
          "spillway rehearse --gpu a100-40gb --steps 3 -- python train.py", true, declare};
}

}  // namespace spillway::tools
