// A whole training run: from a configuration to results.
//
// Thread-safety: one run at a time in a process. Ownership: everything is released when `train` returns; what
// stays are the files in `run.out`: losses.txt (a step a line: number, loss and gradient norm as hexadecimal
// floats), plan_schedule.toml (the plans that were really used, as a schedule that another run can follow)
// train.log, the report (report.txt, .json, .svg) and, when the run ended early or as configured,
// checkpoint.safetensors. Of several ranks the first one writes these, and the others theirs in
// `run.out`/rank-N, but no checkpoint. Errors: `Results::exit_code` and `verdict`.
#pragma once
#include <functional>
#include <string>

#include "trainer/app/results.h"
#include "trainer/app/run/stop.h"
#include "trainer/config/config.h"
#include "trainer/ranks/launch.h"

namespace spillway::trainer {

struct TrainOptions {
  std::string resume;    // the folder of a checkpoint, "" for a fresh run
  Stop* stop = nullptr;  // by which a signal ends it after the step
  bool quiet = false;    // nothing on the console
  Launch launch{};       // with which other processes
  // Tells the results where the training thread cannot return them: another rank has failed, and this one is
  // held up. Called on another thread, and the process ends behind it.
  std::function<void(const Results&)> tell_when_held_up{};
};

Results train(const Config& config, const TrainOptions& options);

}  // namespace spillway::trainer
