// What a run tells of itself while it goes: its lines, its data, the files of losses and plans, and the
// history that its report is made of.
//
// Nothing here has an effect on what is trained. Thread-safety: one thread. Ownership: borrows log and
// history. Errors: `open`'s text; `healthy` says whether losses and plans were written to their end.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "spillway/spillway.h"
#include "trainer/app/event_file.h"
#include "trainer/app/log.h"
#include "trainer/app/run_files.h"
#include "trainer/config/config.h"
#include "trainer/report/history.h"
#include "trainer/step/recoverable_step.h"

namespace spillway::trainer {

struct DoneStep {
  uint64_t number = 0;  // from 0
  double loss = 0, gradient_norm = 0, learning_rate = 0, seconds = 0;
  uint64_t tokens = 0;  // that the loss is of
  double tokens_per_second() const { return double(tokens) / seconds; }
  Plan plan;
  // A device each; empty without Spillway's allocator. Peaks of the step alone, and of the run until now.
  std::vector<spillway_memory> memory, memory_of_run;
};

class Recorder {
 public:
  Recorder(const Config& config, RunLog* log, RunHistory* history);

  // In the folder `run.out`, which exists.
  bool open(bool resumed, std::string* error);
  // A resumed run goes on with this step.
  bool go_on_from(uint64_t step, std::string* error) { return files_.go_on_from(step, error); }
  bool healthy() const { return files_.healthy(); }

  void began(const Plan& plan, const std::string& text);
  void recovered(const std::vector<RecoveryRecord>& all);         // those that were not told yet
  void moved(uint64_t step, const char* action, const Plan& to);  // without a failure
  void done(const DoneStep& step);
  void evaluated(uint64_t steps, double loss, std::optional<double> unigram_entropy);

 private:
  Progress progress_of(const DoneStep& step) const;
  void draw(uint64_t step, const EventFile::Scalars& scalars);
  void remember(const DoneStep& step);

  const Config& config_;
  RunLog& log_;
  RunHistory& history_;
  RunFiles files_;
  EventFile curves_;
  size_t told_ = 0;        // recoveries
  bool disturbed_ = true;  // since the last step
  uint64_t steps_ = 0;     // done since it began
  std::chrono::steady_clock::time_point start_;
};

}  // namespace spillway::trainer
