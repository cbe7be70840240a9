// Training steps under injected failures of every allocation that they make, on the CPU: what they compute is
// bitwise what an undisturbed run computes, or a run that is given the same plans.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <map>
#include <string>
#include <vector>

#include "tests/sanitized.h"
#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/recovery/failing_allocator.h"
#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {

class Recovery : public testing::Test {
 protected:
  static constexpr uint64_t kSteps = 2;

  Recovery() : allocator_(FailingAllocator::install()) {
    config_.model = small_gpt2(2, 16, 2, 8, 0.1);
    config_.train = {.steps = 4, .batch = 4, .warmup = 1};
    config_.data.workers = 0;  // thousands of runs, of two steps each
    config_.evaluation.windows = 6;
    config_.plan = {.micro_batch = 2, .evaluation_batch = 4};
    config_.run.nvme = scratch_.file("");
    config_.run.nvme_least_bytes = 0;
    corpus_ = test_corpus(scratch_, config_.model);
    at::set_num_threads(1);
  }
  ~Recovery() override { allocator_.arm(nullptr, 0, false); }

  // A run of its own: model, optimizer and recovery.
  struct Fixture {
    Fixture(const Config& config, const Corpus& corpus)
        : moves(Core::get(), config.shape(), {.host_is_apart = false}, config.recovery.floor),
          program(config, corpus, {at::Device(at::kCPU)}, config.plan, Core::get(), moves),
          step(program, config.shape(), {.host_is_apart = false}, config.plan, config.recovery) {}
    // The next one may be made in the same place, and allocates before it is a program.
    ~Fixture() { FailingAllocator::install().leave_alone(); }
    Fixture(const Fixture&) = delete;
    PlanMoves moves;
    TrainingStep program;
    RecoverableStep step;
  };

  static Outcome outcome_of(Fixture& run, std::vector<double> losses, std::vector<double> norms) {
    return {std::move(losses), std::move(norms), run.program.parameters().hash()};
  }

  // kSteps steps, each under the plan that `plans` has for it.
  const Outcome& remembered(const std::vector<Plan>& plans) {
    std::string key;
    for (const Plan& plan : plans) key += to_string(plan) + "; ";
    const auto it = references_.find(key);
    return it != references_.end() ? it->second : references_[key] = scheduled(plans);
  }

  Outcome scheduled(const std::vector<Plan>& plans) {
    allocator_.arm(nullptr, 0, false);
    Config config = config_;
    config.plan = plans[0];
    Fixture run(config, corpus_);
    std::vector<double> losses, norms;
    std::string error;
    for (uint64_t step = 0; step < plans.size(); ++step) {
      EXPECT_TRUE(run.step.follow(step, plans[step], &error)) << error;
      EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
      losses.push_back(run.program.loss()), norms.push_back(run.program.gradient_norm());
    }
    return outcome_of(run, losses, norms);
  }

  struct Disturbed {
    Outcome outcome;
    std::vector<Plan> plans;  // that the steps were committed under
    StepOutcome last = StepOutcome::kDone;
    std::string phases, actions;
  };

  Disturbed disturbed(uint64_t n, bool persistent) {
    Fixture run(config_, corpus_);
    allocator_.arm(&run.program, n, persistent);
    Disturbed result;
    std::vector<double> losses, norms;
    for (uint64_t step = 0; step < kSteps && result.last == StepOutcome::kDone; ++step) {
      const uint64_t before = run.program.parameters().hash();
      result.last = run.step.run(step);
      if (result.last == StepOutcome::kGaveUp) {
        EXPECT_EQ(run.program.parameters().hash(), before) << "a step that gave up left no trace";
        EXPECT_EQ(run.program.step(), step);
        allocator_.fail_at = 0;  // there is room again: the same step goes through
        EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
      }
      losses.push_back(run.program.loss()), norms.push_back(run.program.gradient_norm());
      result.plans.push_back(run.step.plan());
    }
    for (const RecoveryRecord& record : run.step.records())
      result.phases += record.phase + " ", result.actions += record.action + " ";
    result.outcome = outcome_of(run, losses, norms);
    allocator_.leave_alone();
    return result;
  }

  // Fails request 1, 2, 3, ... until a run needs fewer.
  struct Sweep {
    uint64_t requests = 0, runs = 0, gave_up = 0;
    std::string phases, actions;
  };

  uint64_t every_ = 1;

  Sweep sweep(bool persistent) {
    Sweep sweep;
    const Outcome undisturbed = scheduled({config_.plan, config_.plan});
    for (uint64_t n = 1;; n += next_sample(every_)) {
      const Disturbed run = disturbed(n, persistent);
      if (allocator_.fired == 0) return sweep;
      sweep.requests = n;
      ++sweep.runs;
      sweep.gave_up += run.last == StepOutcome::kGaveUp;
      sweep.phases += run.phases, sweep.actions += run.actions;
      EXPECT_EQ(run.outcome, remembered(run.plans)) << "request " << n << ": " << run.actions;
      bool exact = true;
      for (const Plan& plan : run.plans)
        exact &= plan.micro_batch == config_.plan.micro_batch && plan.head_chunks == config_.plan.head_chunks;
      if (exact && run.plans.size() == kSteps) {
        EXPECT_EQ(run.outcome, undisturbed) << "request " << n << ": " << run.actions;
      }
      if (testing::Test::HasFailure()) return sweep;
    }
  }

  void expect_quiet_commits() {
    using enum Place;
    for (const Place place : {kDevice, kDevice, kHost, kHost, kNvme, kNvme}) {  // the second one just in time
      config_.plan.optimizer = place;
      Fixture run(config_, corpus_);
      allocator_.arm(&run.program, 0, false);
      for (uint64_t step = 0; step < 3; ++step) EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
      EXPECT_GT(allocator_.requests, 0u) << "the counter counts";
      EXPECT_EQ(allocator_.in_commit, 0u);
      config_.plan.just_in_time = !config_.plan.just_in_time;
    }
  }

  // Everywhere, among others by `action`.
  static void expect_served(const Sweep& swept, const std::string& action) {
    EXPECT_GT(swept.requests, 200u);
    EXPECT_EQ(swept.gave_up, 0u);
    EXPECT_THAT(swept.actions, testing::HasSubstr(action));
  }

  const ScratchFolder scratch_;
  FailingAllocator& allocator_;
  Config config_;
  Corpus corpus_;
  std::map<std::string, Outcome> references_;  // undisturbed runs by their plans
};

}  // namespace spillway::trainer
