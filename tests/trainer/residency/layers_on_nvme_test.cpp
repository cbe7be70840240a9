// Layers whose weights, gradients or both are on a disk: the bits of a training that has them on the card, on
// a disk that fails too; and the memory of the card and of the host that they need.
#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>
#include <thread>

#include "tests/trainer/residency/failing_io.h"
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/app/trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/schedule.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;

// More layers than there are buffers of the host.
class LayersOnNvme : public StreamedTraining {
 protected:
  static constexpr uint32_t kLayers = 6;
  static_assert(kLayers > kLayerBuffers);

  LayersOnNvme() : StreamedTraining({.layers = kLayers}) {}
};
INSTANTIATE_TEST_SUITE_P(
    Of, LayersOnNvme,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kInt8, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFp16Mixed, OptimizerKind::kAdafactor}}),
    case_of_streams);

TEST_P(LayersOnNvme, GiveTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  std::vector<Plan> plans;
  const auto with = [&](auto change) { change(plans.emplace_back(config_.plan)); };
  if (GetParam().family == Family::kGpt2) {
    EXPECT_THAT(plain.norms, Contains(testing::Truly([](double norm) { return !std::isfinite(norm); })));
    with([](Plan& plan) { plan.parameters = Place::kNvme; });
    with([](Plan& plan) { plan.gradients = Place::kNvme; });
  }
  with([](Plan& plan) { plan.parameters = plan.gradients = plan.optimizer = Place::kNvme; });
  with([this](Plan& plan) {
    plan.parameters = plan.gradients = Place::kNvme, plan.recompute = all_, plan.recompute_segment = 2;
  });
  for (const Plan& plan : plans) EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// Between all places and to a second card, in the middle of a training.
TEST_P(LayersOnNvme, MovesBetweenPlacesAndCardsKeepTheBits) {
  devices_.emplace_back(at::kCUDA, 1);
  const std::vector<Plan> plain(9, config_.plan);
  Plan weights = config_.plan, disk = config_.plan, host = config_.plan, there = config_.plan;
  weights.parameters = Place::kNvme;
  disk.parameters = disk.gradients = Place::kNvme;
  host.parameters = host.gradients = Place::kHost;
  there = disk;
  there.placement = {{1, 1}, {3, 1}, {5, 1}};
  Plan mixed = there;
  mixed.gradients = Place::kHost, mixed.recompute = all_;
  EXPECT_EQ(reference({config_.plan, weights, disk, host, disk, there, mixed, disk, config_.plan}),
            reference(plain));
}

TEST_P(LayersOnNvme, TheCommitMakesNoRequest) {
  config_.plan.parameters = config_.plan.gradients = Place::kNvme;
  expect_quiet_commits();
}

// A disk that fails, and every request of a step.
class LayersOnNvmeFailures : public Simulated {
 protected:
  static constexpr uint64_t kUpdates = 3;

  LayersOnNvmeFailures() {
    config_.model = small_gpt2(6, 16, 2, 8, 0.1);
    config_.recovery.floor = Guarantee::kBitExact;
    config_.train.clip = 0.5;
    plain_plan_ = config_.plan;
    config_.plan.parameters = config_.plan.gradients = Place::kNvme;
  }
  const Outcome& plain() { return reference(std::vector<Plan>(kUpdates, plain_plan_)); }

  // The fault comes when the layers have got their places.
  Outcome under(const IoFault& fault) {
    FailingIo::arm({});
    Fixture fixture(config_, corpus_, devices_);
    FailingIo::arm(fault);
    Outcome outcome;
    for (uint64_t step = 0; step < kUpdates; ++step) {
      EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone);
      outcome.losses.push_back(fixture.program.loss());
      outcome.norms.push_back(fixture.program.gradient_norm());
    }
    outcome.weights = fixture.program.parameters().hash();
    remarks_ = fixture.program.remarks();
    return outcome;
  }
  uint64_t faults(const IoFault& fault, uint64_t every) {
    return at_each(fault, every, [this](const IoFault& of) {
      const Outcome outcome = under(of);
      EXPECT_EQ(outcome, plain()) << of.at;
      return FailingIo::fired > 0;
    });
  }

  const FailingIo failing_;
  Plan plain_plan_;
  std::vector<std::string> remarks_;
};

TEST_F(LayersOnNvmeFailures, ADiskThatFailsChangesNoBit) {
  EXPECT_GT(faults({.error = EIO}, 9), 5u);
  EXPECT_GT(faults({.kind = IoFault::Kind::kFlippedBit}, 23), 1u);
  EXPECT_GT(faults({.writes = true, .error = EIO}, 9), 4u);
  EXPECT_GT(faults({.writes = true, .persistent = true, .error = ENOSPC}, 7), 5u);
  under({.writes = true, .at = 1, .persistent = true, .error = ENOSPC});
  EXPECT_THAT(remarks_, Contains(AllOf(HasSubstr("the layers' parameters stay in memory"),
                                       HasSubstr("No space left on device"))));
  EXPECT_THAT(remarks_, Contains(HasSubstr("the layers' gradients stay in memory")));
  EXPECT_EQ(violations(), "");
}

TEST_F(LayersOnNvmeFailures, ALayerThatCannotBeReadIsNamedAndTheLastCheckpointGoesOn) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  for (const uint64_t n : {1, 7, 13, 17}) {  // in the forward, in the backward, in the update
    Fixture run(config_, corpus_, devices_);
    for (uint64_t step = 0; step < 2; ++step) ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
    ASSERT_TRUE(save_checkpoint(path, config_, corpus_, run.program, {config_.plan}, &error)) << error;
    FailingIo::arm({.at = n, .persistent = true, .error = EIO});
    try {
      run.step.run(2);
      FAIL() << "it went on";
    } catch (const RecordLost& lost) {
      EXPECT_THAT(lost.what(), testing::ContainsRegex(
                                   "the (parameters|gradients) of layer [0-5]'s (attention|MLP) are lost"));
      EXPECT_THAT(lost.what(), HasSubstr("Input/output error"));
    }
    EXPECT_GE(FailingIo::fired, kIoAttempts);
    FailingIo::arm({});
  }
  Fixture resumed(config_, corpus_, devices_);
  ASSERT_TRUE(load_checkpoint(path, config_, &resumed.program, &error)) << error;
  ASSERT_EQ(resumed.step.run(2), StepOutcome::kDone);
  EXPECT_EQ(resumed.program.parameters().hash(), plain().weights);
}

TEST_F(LayersOnNvmeFailures, ADiskWithoutSpaceIsAFailureOfThePlanAndTheOldOneGoesOn) {
  const Plan nvme = std::exchange(config_.plan, plain_plan_);
  const auto goes_on_after = [&](const char* says) {
    std::string error;
    Fixture run(config_, corpus_, devices_);
    ASSERT_EQ(run.step.run(0), StepOutcome::kDone);
    EXPECT_FALSE(run.step.follow(1, nvme, &error));
    EXPECT_THAT(error, HasSubstr(says));
    EXPECT_EQ(run.step.plan(), plain_plan_);
    FailingIo::arm({});
    for (uint64_t step = 1; step < kUpdates; ++step) ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
    EXPECT_EQ(run.program.parameters().hash(), plain().weights);
  };
  plain();
  FailingIo::arm({.writes = true, .at = 3, .persistent = true, .error = ENOSPC});
  goes_on_after("the layers' gradients cannot be written: ");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  rlimit small = limit;
  small.rlim_cur = 32768;  // some layers, and not all
  ::setrlimit(RLIMIT_FSIZE, &small);
  goes_on_after("no room for the layers' gradients on a disk: ");
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(violations(), "");
}

TEST_F(LayersOnNvmeFailures, EveryRequestFailingOnceOrUntilAMoveGivesTheUndisturbedBits) {
  every_ = 31;
  expect_served(sweep(Injection::kOnce), "");
  every_ = 67;
  expect_served(sweep(Injection::kUntilAMove), "recompute");
}

TEST_F(LayersOnNvmeFailures, EveryDriverCallFailingOnceIsServedToTheBit) {
  config_.model = small_gpt2(6, 64, 2, 64);
  EXPECT_EQ(sweep(Injection::kDriverOnce).gave_up, 0u);
}

class LayersOnNvmeMemory : public Simulated {
 protected:
  struct Need {
    uint64_t device = 0, host = 0, host_of_states = 0;
  };
  // Of the host alone what is page-locked.
  Need needed(uint32_t layers, uint32_t width, uint64_t limit) {
    Config config = config_;
    config.model = small_gpt2(layers, width, 2, 16);
    config.train = {.steps = 2, .batch = 2, .warmup = 1};
    config.plan = {.micro_batch = 1, .evaluation_batch = 1, .optimizer = Place::kNvme};
    for (uint32_t layer = 0; layer < layers; ++layer) config.plan.recompute.insert(layer);
    config.plan.parameters = config.plan.gradients = Place::kNvme;
    config.data.corpus = scratch_.corpus();
    config.run.out = scratch_.file("run");
    config.run.limit_bytes = limit;
    config.run.nvme_least_bytes = 64 << 10;
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    PageLocked::begin_most();
    const uint64_t before = PageLocked::bytes().now;
    const Results results = train(config, {.resume = "", .stop = nullptr, .quiet = true});
    set_limits(0);
    EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
    EXPECT_TRUE(results.records.empty());
    EXPECT_EQ(results.plan, config.plan);
    Machine machine;
    machine.nvme_least_bytes = config.run.nvme_least_bytes;
    const Estimate estimated = estimate(config.shape(), config.plan, machine);
    Need need{.device = results.memory.empty() ? 0 : results.memory.at(0).peak_live,
              .host = PageLocked::bytes().most - before};
    for (const EstimateItem& item : estimated.items)
      if (item.host && (item.name == "optimizer state" || item.name == "buffers of the disk"))
        need.host_of_states += item.bytes;
    EXPECT_NEAR(double(need.host), double(estimated.host_bytes), 0.03 * double(need.host)) << layers;
    return need;
  }
};

TEST_F(LayersOnNvmeMemory, ThePeakFollowsTheLargestLayerAndTheHostsTheBuffers) {
  const Need few = needed(4, 128, 0), many = needed(16, 128, 0);
  const uint64_t inputs = 16 * 128 * 4;  // of a layer, kept for its backward
  EXPECT_LE(many.device, few.device + 13 * inputs);
  EXPECT_EQ(many.host - many.host_of_states, few.host - few.host_of_states);
}

TEST_F(LayersOnNvmeMemory, AModelOfTenTimesTheCardAndTwiceTheHostTrains) {
  const uint64_t all = 16 * parameter_count(small_gpt2(32, 192, 2, 16));  // values, gradients and moments
  EXPECT_LT(needed(32, 192, all / 10).host, all / 2);
}

// The program itself: SIGKILL while layers, and what they keep, are read and written.
TEST_F(LayersOnNvmeMemory, AKilledTrainingGoesOnFromItsLastCheckpointToTheBit) {
  const std::string config = scratch_.file("x.toml"), disk = scratch_.file("disk");
  ScratchFolder::write(config,
                       "[model]\nlayers = 6\nwidth = 128\nheads = 2\ncontext = 8\n[data]\ncorpus = \"" +
                           scratch_.corpus() +
                           "\"\n[train]\nsteps = 12\nbatch = 1\n[run]\nthreads = 1\ncheckpoint_every = 4\n"
                           "nvme = \"" +
                           disk + "\"\nnvme_least = 0\n");
  const auto started = [&](const std::string& out, const std::vector<std::string>& more) {
    const char* build = std::getenv("SPILLWAY_BUILD_DIR");  // else the folder that the test runs in
    std::vector<std::string> words{std::string(build ? build : ".") + "/bin/spillway-train",
                                   "--config",
                                   config,
                                   "--quiet",
                                   "--set",
                                   "run.out=\"" + scratch_.file(out) + "\""};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t process = ::fork();
    if (process == 0) {
      if (std::freopen("/dev/null", "w", stdout) != nullptr) ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    return process;
  };
  const auto status_of = [](pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    return status;
  };
  const auto lines = [&](const std::string& out) {
    std::istringstream text(ScratchFolder::read(scratch_.file(out) + "/losses.txt"));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  };
  std::vector<std::string> nvme;
  for (const char* on_disk : {"plan.parameters=nvme", "plan.gradients=nvme", "plan.optimizer=nvme",
                              "plan.offload=all", "plan.offload_to=nvme", "train.offload_least_bytes=1"})
    nvme.insert(nvme.end(), {"--set", on_disk});
  ASSERT_EQ(status_of(started("whole", {})), 0);
  const pid_t process = started("cut", nvme);
  while (lines("cut").size() < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(process, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(process)));
  EXPECT_LT(lines("cut").size(), 12u);
  EXPECT_TRUE(std::filesystem::is_empty(disk)) << "nothing is left of the files";
  ASSERT_EQ(status_of(started("cut", {"--resume", scratch_.file("cut")})), 0);
  EXPECT_EQ(lines("cut").back(), lines("whole").back());
}

}  // namespace
}  // namespace spillway::trainer
