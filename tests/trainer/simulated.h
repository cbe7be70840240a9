// Trainings on simulated GPUs, with Spillway's allocator and its ladder: true values, and failures of
// requests and of driver calls where a test wants them.
#pragma once
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "driver/simulator_control.h"
#include "tests/sanitized.h"
#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {

inline constexpr uint64_t kMiB = 1 << 20;

inline const SpillwaySimulatorControl& simulator() {
  static const SpillwaySimulatorControl* control = [] {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    auto function = driver ? reinterpret_cast<SpillwaySimulatorControlFunction>(
                                 ::dlsym(driver, "spillway_simulator_control"))
                           : nullptr;
    return function ? function() : nullptr;
  }();
  if (!control) throw std::runtime_error("this test needs the simulated driver");
  return *control;
}

inline std::string violations() {
  std::string text(1 << 16, '\0');
  text.resize(std::min(text.size() - 1, simulator().violations(text.data(), text.size())));
  return text;
}

// Injection ends when a plan move is adopted: until then every request fails.
class UntilAMove : public TrainingStep {
 public:
  using TrainingStep::TrainingStep;
  bool ends_at_move = false;
  uint64_t fired = 0;
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    if (ends_at_move) fired += Core::get().table()->fail_request(0, 0);
    return TrainingStep::adopt(from, to);
  }
};

class Simulated : public testing::Test {
 protected:
  enum class Injection { kNone, kOnce, kFromThereOn, kUntilAMove, kDriverOnce, kDriverFromThereOn };

  static void SetUpTestSuite() {
    std::string error;
    ASSERT_TRUE(Core::install("", &error)) << error;
    at::set_num_threads(1);
  }
  Simulated() {
    config_.model = small_gpt2(2, 16, 2, 8);
    config_.data.workers = 0;  // many short runs
    config_.train = {.steps = 4, .batch = 4, .warmup = 1};
    config_.evaluation.windows = 4;
    config_.plan = {.micro_batch = 2, .evaluation_batch = 4};
    config_.run.nvme = scratch_.file("");
    config_.run.nvme_least_bytes = 0;
    corpus_ = test_corpus(scratch_, config_.model);
  }
  ~Simulated() override {
    known_limits_.clear();
    set_limits(0);
    core_.table()->fail_request(0, 0);
    simulator().fail_call(0, nullptr, 0, CUDA_SUCCESS);
  }

  struct Fixture {
    Fixture(const Config& config, const Corpus& corpus, const std::vector<at::Device>& devices)
        : machine{.devices = uint32_t(devices.size()), .device_limits = known_limits_},
          moves(Core::get(), config.shape(), machine, config.recovery.floor),
          program(config, corpus, devices, config.plan, Core::get(), moves),
          step(program, config.shape(), machine, config.plan, config.recovery) {}
    Machine machine;
    PlanMoves moves;
    UntilAMove program;
    RecoverableStep step;
  };

  struct Ran {
    Outcome outcome;
    std::vector<Plan> plans;
    StepOutcome last = StepOutcome::kDone;
    std::string actions;
    uint64_t fired = 0;
  };

  void set_limits(uint64_t bytes) {
    for (int device = 0; device < 2; ++device) core_.limit(device, bytes);
  }
  static uint64_t live() {
    uint64_t bytes = 0;
    spillway_memory memory;
    for (int device = 0; device < 2; ++device)
      if (Core::get().query(device, &memory)) bytes += memory.live;
    return bytes;
  }

  void arm(Injection injection, uint64_t n, Fixture* run) {
    run->program.ends_at_move = injection == Injection::kUntilAMove;
    if (injection == Injection::kOnce) core_.table()->fail_request(n, 0);
    if (injection == Injection::kFromThereOn || injection == Injection::kUntilAMove)
      core_.table()->fail_request(n, 1);
    if (injection < Injection::kDriverOnce) return;
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);  // so that the step has to ask the driver
    simulator().fail_call(n, nullptr, injection == Injection::kDriverFromThereOn, CUDA_ERROR_OUT_OF_MEMORY);
  }

  static SpillwaySimulatorCounts counts() {
    SpillwaySimulatorCounts counts{};
    simulator().counts(&counts);
    return counts;
  }

  // Runs the steps of `plans`, or `steps` free ones under the configuration's plan.
  Ran run(Injection injection, uint64_t n, uint64_t steps, const std::vector<Plan>& schedule = {}) {
    Config config = config_;
    if (!schedule.empty()) config.plan = schedule[0];
    Ran ran;
    const uint64_t injected = counts().injected_failures;
    {
      Fixture fixture(config, corpus_, devices_);
      arm(injection, n, &fixture);
      std::string error;
      for (uint64_t step = 0; step < steps && ran.last == StepOutcome::kDone; ++step) {
        if (step < schedule.size()) {
          EXPECT_TRUE(fixture.step.follow(step, schedule[step], &error)) << error;
        }
        ran.last = fixture.step.run(step);
        ran.outcome.losses.push_back(fixture.program.loss());
        ran.outcome.norms.push_back(fixture.program.gradient_norm());
        ran.plans.push_back(fixture.step.plan());
      }
      ran.fired = fixture.program.fired + core_.table()->fail_request(0, 0);
      simulator().fail_call(0, nullptr, 0, CUDA_SUCCESS);
      ran.fired += counts().injected_failures - injected;
      for (const RecoveryRecord& record : fixture.step.records()) ran.actions += record.action + " ";
      ran.outcome.weights = fixture.program.parameters().hash();
    }
    EXPECT_EQ(core_.table()->check_invariants(), 1) << core_.last_error();
    return ran;
  }

  const Outcome& reference(const std::vector<Plan>& plans) {
    std::string key;
    for (const Plan& plan : plans) key += to_string(plan) + "; ";
    const auto it = references_.find(key);
    if (it != references_.end()) return it->second;
    const Ran ran = run(Injection::kNone, 0, plans.size(), plans);
    EXPECT_EQ(ran.actions, "") << "the reference is undisturbed";
    return references_[key] = ran.outcome;
  }

  struct Sweep {
    uint64_t points = 0, runs = 0, gave_up = 0;
    std::string actions;
  };
  // Injects at 1, 2, 3, ... until a step needs fewer.
  Sweep sweep(Injection injection) {
    Sweep sweep;
    const Outcome undisturbed = reference({config_.plan});
    const uint64_t at_rest = live();
    for (uint64_t n = 1; !HasFailure(); n += next_sample(every_)) {
      const Ran ran = run(injection, n, 1);
      if (ran.fired == 0) break;
      sweep.points = n;
      ++sweep.runs;
      sweep.gave_up += ran.last == StepOutcome::kGaveUp;
      sweep.actions += ran.actions;
      EXPECT_EQ(live(), at_rest) << "leaked at " << n;
      if (ran.last == StepOutcome::kGaveUp) continue;
      EXPECT_EQ(ran.outcome, reference(ran.plans)) << "at " << n << ": " << ran.actions;
      if (ran.plans[0].micro_batch == config_.plan.micro_batch &&
          ran.plans[0].head_chunks == config_.plan.head_chunks) {
        EXPECT_EQ(ran.outcome, undisturbed) << "at " << n << ": " << ran.actions;
      }
    }
    EXPECT_EQ(violations(), "");
    return sweep;
  }

  // Everywhere, among others by `action`.
  static void expect_served(const Sweep& swept, const std::string& action) {
    EXPECT_GT(swept.points, 100u);
    EXPECT_EQ(swept.gave_up, 0u);
    EXPECT_THAT(swept.actions, testing::HasSubstr(action));
  }

  // Neither the commits of two steps nor the updates that come later make a request.
  void expect_quiet_commit() {
    Fixture fixture(config_, corpus_, devices_);
    for (int step = 0; step < 2; ++step) {
      fixture.program.save_step();
      for (uint32_t i = 0; i < 2; ++i) ASSERT_FALSE(fixture.program.run_micro_batch(i, config_.plan));
      ASSERT_FALSE(fixture.program.prepare_commit());
      const uint64_t before = core_.table()->requests(), calls = counts().driver_calls;
      fixture.program.commit();
      fixture.program.optimizer().finish_update();
      EXPECT_EQ(core_.table()->requests(), before);
      EXPECT_EQ(counts().driver_calls, calls);
    }
  }
  void expect_quiet_commits() {
    for (const Place place : {Place::kDevice, Place::kHost, Place::kNvme}) {
      config_.plan.optimizer = place;
      expect_quiet_commit();
    }
  }

  const ScratchFolder scratch_;
  const Core& core_ = Core::get();
  Config config_;
  Corpus corpus_;
  std::vector<at::Device> devices_{at::Device(at::kCUDA, 0)};
  std::map<std::string, Outcome> references_;
  uint64_t every_ = 1;                                  // of the places that a sweep injects at
  inline static std::vector<uint64_t> known_limits_{};  // of the devices, that moves go by
};

}  // namespace spillway::trainer
