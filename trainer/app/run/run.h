// One training run of this process: what it is made of, and its steps.
//
// Thread-safety: one run at a time. Ownership: it borrows the log and the history. Errors: SetupError and
// SetupOutOfMemory where it cannot begin; afterwards `Results::exit_code` and `verdict`.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/app/automatic_plan.h"
#include "trainer/app/recorder.h"
#include "trainer/app/run/rank_end.h"
#include "trainer/app/trainer.h"
#include "trainer/checkpoint/saved_plan.h"
#include "trainer/libtorch.h"
#include "trainer/pretrained/text_marks.h"
#include "trainer/residency/host_tensor.h"
#include "trainer/runtime/peaks.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {

// An error of the configuration or the machine, with the text for the user.
struct SetupError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct SetupOutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Run {
 public:
  Run(const Config& config, const TrainOptions& options, RunLog* log, RunHistory* history, RankEnd* rank_end);

  // `rates`: where those of the history come from.
  Results run(RatesFrom* rates);

 private:
  // Before it begins: setup.cpp, build.cpp.
  void make_nvme_folder(const std::string& folder);
  static Corpus open_corpus(const Config& config);
  void join_ranks(RankEnd* rank_end);
  void await_signals();
  void set_aside_checkpoint();
  void apply_limit();
  void measure_devices();
  void check(const Plan& plan) const;
  void read_what_it_begins_with();
  void check_plans() const;
  // The checkpoint's, where --resume is given.
  std::optional<SavedPlan> plan_to_resume() const;
  bool goes_on_here() const;
  void check_sequences();
  void check_twins();
  // Builds the program, from the checkpoint if there is one to resume.
  void build();
  void warn_of_changes(const std::string& checkpoint);
  void begin();
  Plan first_plan() const;
  Plan in_one_sequence(const Plan& plan) const;
  Plan resumed_plan(const SavedPlan& saved);
  Plan for_ranks(Plan plan) const;
  Plan for_devices(Plan plan);
  Guarantee held_by_checkpoint(const SavedPlan& saved) const;
  Guarantee guarantee_held() const;
  void begin_files();
  // Why there was no room for it.
  struct NoRoom {
    std::string text;
    std::optional<HostOutOfMemory> of_host;
  };
  std::optional<NoRoom> build_program(const Plan& plan);
  bool goes_to_peers(Plan* plan, Place Plan::* place) const;
  bool goes_to(Place to, Plan* plan, Place Plan::* place, const NoRoom& failure) const;
  void build_where_there_is_room(Plan* plan);
  std::string least_need(Plan plan) const;

  // Its steps: steps.cpp.
  void train_steps();
  bool step_once();
  double weight_of_signal() const;
  int signal_to_stop() const;
  void end_by(int signal);
  void share_guarantee();
  StepOutcome run_step(uint64_t step);
  void look_at_loss(uint64_t step);
  bool evaluate();
  void gave_up(const std::string& where);
  void end_with_checkpoint(int code, const std::string& verdict);
  uint64_t smallest_limit() const;

  // What it leaves: run.cpp.
  bool checkpoint();
  bool write_checkpoint();
  bool with_all_states(const std::function<bool()>& lead);
  void collect();
  void save();
  void leave_ranks();
  void check_replicas();
  TextMarks text_marks() const;
  bool save_weights(std::string* error);
  void say_remarks();
  void warn_of(const std::string& remark);
  void warn_of_idle_stages(const Plan& plan);
  void warn_of_small_ones(const Plan& plan, const Estimate& need);
  void end(int code, std::string verdict);

  Config config_;  // settled when the devices are known
  const TrainOptions options_;
  RunLog& log_;
  RunHistory& history_;
  const Core& core_;
  const Shape shape_;  // of this rank
  const Corpus corpus_;
  const ConfiguredPlan configured_;
  const std::string checkpoint_;
  std::optional<SavedPlan> resumed_;
  Recorder recorder_;
  PeakWatch peaks_;
  std::vector<at::Device> devices_;
  std::shared_ptr<Ranks> ranks_;
  Mesh mesh_;
  Machine machine_;
  Survey survey_;
  std::unique_ptr<PlanMoves> moves_;
  std::unique_ptr<TrainingStep> program_;
  std::unique_ptr<RecoverableStep> recoverable_;
  Guarantee start_ = Guarantee::kBitExact;     // what the plan or the checkpoint that it began with leaves of
                                               // the configuration's
  Guarantee of_ranks_ = Guarantee::kBitExact;  // the weakest that another rank has held
  std::optional<uint64_t> first_not_finite_;   // the step whose loss was so
  std::set<std::string> said_;                 // of the optimizer's remarks
  Results results_;
};

}  // namespace spillway::trainer
