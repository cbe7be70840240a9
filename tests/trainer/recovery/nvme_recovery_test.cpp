// States on a disk that fails: every write and every read of a run, once and for good. What is written is
// never lost, and the bits are those of a run without a failure; what cannot be read back is named.
#include <sys/resource.h>
#include <csignal>

#include "tests/trainer/recovery/recovery_fixture.h"
#include "tests/trainer/residency/failing_io.h"
#include "trainer/checkpoint/checkpoint.h"

namespace spillway::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;

class OnNvme : public Recovery {
 protected:
  static constexpr uint64_t kUpdates = 3;

  OnNvme() {
    config_.train.numerics.precision = Precision::kFp16Mixed;
    config_.train.clip = 0.5;
    config_.train.loss_scale = 0x1p18 + 0.1;  // the first step overflows
    plain_ = scheduled(std::vector<Plan>(kUpdates, config_.plan));
    config_.plan.optimizer = Place::kNvme;
  }

  struct Tried {
    Outcome outcome;
    std::vector<std::string> remarks;
    uint64_t fired = 0;
  };
  // The fault comes after the states have got their places.
  Tried tried(const IoFault& fault) {
    FailingIo::arm({});
    Fixture run(config_, corpus_);
    FailingIo::arm(fault);
    std::vector<double> losses, norms;
    for (uint64_t step = 0; step < kUpdates; ++step) {
      EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
      losses.push_back(run.program.loss()), norms.push_back(run.program.gradient_norm());
    }
    run.program.optimizer().states(0);  // what is under way has ended
    return {outcome_of(run, losses, norms), run.program.optimizer().remarks(), FailingIo::fired};
  }
  // At 1, 2, 3, ... until a run needs fewer.
  uint64_t sweep(IoFault fault) {
    uint64_t last = 0;
    const uint64_t next = kSanitized ? 11 * every_ : every_;  // a run has some sixty
    for (uint64_t n = 1; !HasFailure(); n += next) {
      fault.at = n;
      const Tried run = tried(fault);
      if (run.fired == 0) break;
      last = n;
      EXPECT_EQ(run.outcome, plain_) << "at " << n;
    }
    return last;
  }

  const FailingIo failing_;
  Outcome plain_;
};

TEST_F(OnNvme, EveryWriteAndReadThatFailsOnceIsTriedAgain) {
  EXPECT_THAT(plain_.norms,
              AllOf(Contains(testing::Truly([](double norm) { return std::isfinite(norm); })),
                    Contains(testing::Truly([](double norm) { return !std::isfinite(norm); }))));
  EXPECT_GT(sweep({.writes = true, .error = EIO}), 50u);
  EXPECT_GT(sweep({.error = EIO}), 50u);
  every_ = kSanitized ? 2 : 7;  // of fifty and more
  EXPECT_GT(sweep({.kind = IoFault::Kind::kFlippedBit}), 40u);
  EXPECT_GT(sweep({.writes = true, .kind = IoFault::Kind::kShort, .short_bytes = 512}), 40u);
}

TEST_F(OnNvme, WhatCannotBeWrittenFromAnyWriteOnStaysInMemory) {
  for (const int error : {ENOSPC, EIO}) {
    every_ = error == EIO && !kSanitized ? 5 : 1;
    EXPECT_GT(sweep({.writes = true, .persistent = true, .error = error}), 50u);
  }
  const Tried run = tried({.writes = true, .at = 1, .persistent = true, .error = ENOSPC});
  EXPECT_THAT(run.remarks,
              Contains(AllOf(HasSubstr("stay in memory"), HasSubstr("No space left on device"))));
}

TEST_F(OnNvme, WhatStaysInMemoryIsInACheckpointAndGoesBackToADiskThatWorksAgain) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  Fixture run(config_, corpus_);
  FailingIo::arm({.writes = true, .at = 1, .persistent = true, .error = EIO});
  for (uint64_t step = 0; step < 2; ++step) ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
  ASSERT_TRUE(save_checkpoint(path, config_, corpus_, run.program, {config_.plan}, &error)) << error;
  EXPECT_GT(FailingIo::fired, 0u);
  FailingIo::arm({});
  ASSERT_EQ(run.step.run(2), StepOutcome::kDone);
  EXPECT_EQ(run.program.parameters().hash(), plain_.weights);
  Fixture resumed(config_, corpus_);
  ASSERT_TRUE(load_checkpoint(path, config_, &resumed.program, &error)) << error;
  ASSERT_EQ(resumed.step.run(2), StepOutcome::kDone);
  EXPECT_EQ(resumed.program.parameters().hash(), plain_.weights);
}

TEST_F(OnNvme, WhatCannotBeReadIsNamedAndTheLastCheckpointGoesOn) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  for (const IoFault::Kind kind : {IoFault::Kind::kError, IoFault::Kind::kFlippedBit}) {
    Fixture run(config_, corpus_);
    for (uint64_t step = 0; step < 2; ++step) ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
    ASSERT_TRUE(save_checkpoint(path, config_, corpus_, run.program, {config_.plan}, &error)) << error;
    FailingIo::arm({.at = 2, .persistent = true, .kind = kind, .error = EIO});
    try {
      for (uint64_t step = 2; step < 5; ++step) run.step.run(step);  // of which some may overflow
      FAIL() << "it went on";
    } catch (const RecordLost& lost) {
      EXPECT_THAT(lost.what(), HasSubstr("the optimizer's states of elements "));
      EXPECT_THAT(lost.what(),
                  HasSubstr(kind == IoFault::Kind::kError ? "Input/output error" : "another checksum"));
    }
    EXPECT_GE(FailingIo::fired, kIoAttempts);
    FailingIo::arm({});
  }
  Fixture resumed(config_, corpus_);
  ASSERT_TRUE(load_checkpoint(path, config_, &resumed.program, &error)) << error;
  ASSERT_EQ(resumed.step.run(2), StepOutcome::kDone);
  EXPECT_EQ(resumed.program.parameters().hash(), plain_.weights);
}

TEST_F(OnNvme, ADiskWithoutSpaceIsAFailureOfThePlanAndTheOldOneGoesOn) {
  Plan device = config_.plan;
  device.optimizer = Place::kDevice;
  const Plan nvme = std::exchange(config_.plan, device);
  const auto goes_on_after = [&](const char* says) {
    std::string error;
    Fixture run(config_, corpus_);
    ASSERT_EQ(run.step.run(0), StepOutcome::kDone);
    EXPECT_FALSE(run.step.follow(1, nvme, &error));
    EXPECT_THAT(error, HasSubstr(says));
    EXPECT_EQ(run.step.plan(), device);
    FailingIo::arm({});
    for (uint64_t step = 1; step < kUpdates; ++step) ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
    EXPECT_EQ(run.program.parameters().hash(), plain_.weights);
  };
  FailingIo::arm({.writes = true, .at = 9, .persistent = true, .error = ENOSPC});
  goes_on_after("cannot be written");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  rlimit small = limit;
  small.rlim_cur = 4096;
  ::setrlimit(RLIMIT_FSIZE, &small);
  goes_on_after("no room for the optimizer's states on a disk");
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  config_.run.nvme = scratch_.file("nowhere");
  goes_on_after("No such file or directory");
}

}  // namespace
}  // namespace spillway::trainer
