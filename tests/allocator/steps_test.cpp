// Where the program's steps end, and what their times say of memory that lies elsewhere.
#include <gtest/gtest.h>

#include <vector>

#include "allocator/tiers/steps/step_finder.h"
#include "allocator/tiers/steps/step_times.h"

namespace spillway::testing {
namespace {

constexpr uint64_t kBorn = 10, kLearning = 20;

// A program that uses its weight at these places of each step.
struct Program {
  std::vector<uint64_t> uses;
  uint64_t step_orders = 0;
  uint64_t order = 1000;
  StepFinder finder{};
  Block weight{};
  std::vector<uint64_t> ends{};
  unsigned begins = 0;

  static void live(Block* block) {
    block->state = BlockState::kLive;
    AccessFrequency::begin(block, kBorn);
  }
  void step() {
    live(&weight);
    for (const uint64_t use : uses) {
      const StepBoundary boundary = finder.used(&weight, kBorn, order + use, kLearning);
      if (boundary == StepBoundary::kEnds) ends.push_back(order + use);
      if (boundary == StepBoundary::kBegins) ++begins;
    }
    order += step_orders;
  }
};

TEST(StepFinder, FindsTheStepThatRepeats) {
  // Forward, backward, and the update's operators one after the other.
  Program program{.uses = {100, 1900, 2400, 2410, 2420}, .step_orders = 2500};
  for (int i = 0; i < 8; ++i) program.step();
  EXPECT_LE(program.begins, 2u);
  ASSERT_GE(program.ends.size(), 4u);
  for (size_t i = 1; i < program.ends.size(); ++i)
    EXPECT_EQ(program.ends[i] - program.ends[i - 1], program.step_orders);
}

TEST(StepFinder, ALittleMoreOrLessIsTheSameStep) {
  Program program{.uses = {100, 1900}, .step_orders = 2500};
  for (int i = 0; i < 10; ++i) {
    program.step_orders = i % 2 == 0 ? 2500 : 2520;
    program.step();
  }
  EXPECT_GE(program.ends.size(), 5u);
}

TEST(StepFinder, WhatRepeatsWithinFewPlacesIsALayer) {
  Program program{.uses = {0, 40, 80, 120, 160, 200, 240, 280}, .step_orders = 2000};
  for (int i = 0; i < 8; ++i) program.step();
  for (size_t i = 1; i < program.ends.size(); ++i)
    EXPECT_EQ((program.ends[i] - program.ends[i - 1]) % program.step_orders, 0u);
}

TEST(StepFinder, WithoutRepetitionALongStretchIsOne) {
  Program program{.uses = {0}, .step_orders = 200};
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      program.step();
      program.step_orders += program.step_orders;
    }
  };
  steps(4);
  EXPECT_TRUE(program.ends.empty());
  steps(4);
  EXPECT_FALSE(program.ends.empty()) << "a long stretch is as good";
}

TEST(StepFinder, ABlockThatIsGoneIsReplaced) {
  Program program{.uses = {0}, .step_orders = 500};
  Block gone{};
  Program::live(&gone);
  EXPECT_EQ(program.finder.used(&gone, kBorn, 30, kLearning), StepBoundary::kNone);
  gone.state = BlockState::kHole;
  for (int i = 0; i < 6; ++i) program.step();
  EXPECT_GE(program.ends.size(), 3u) << "at once";
}

TEST(StepFinder, ABlockThatIsUsedNoMoreIsReplaced) {
  Program program{.uses = {0}, .step_orders = 500};
  Block idle{};
  Program::live(&idle);
  EXPECT_EQ(program.finder.used(&idle, kBorn, 30, kLearning), StepBoundary::kNone);
  for (int i = 0; i < 20; ++i) program.step();
  EXPECT_GE(program.ends.size(), 5u);
}

TEST(StepFinder, TheProgramsOwnWordIsTheOnlyOneFromThenOn) {
  Program program{.uses = {0}, .step_orders = 500};
  EXPECT_EQ(program.finder.begins(), StepBoundary::kBegins);
  for (int i = 0; i < 8; ++i) program.step();
  EXPECT_TRUE(program.ends.empty());
  EXPECT_EQ(program.finder.begins(), StepBoundary::kEnds);
}

StepSample before(double us) {
  return {.us = us, .orders = 100, .link_us = 0, .before = true};
}
StepSample with(double us, double link_us) {
  return {.us = us, .orders = 100, .link_us = link_us, .before = false};
}

TEST(StepTimes, MeasureAgainstStepsBefore) {
  StepTimes times;
  EXPECT_EQ(times.us_per_order(), 0);
  for (const double us : {5000.0, 1000.0, 1000.0}) times.add(before(us));
  EXPECT_DOUBLE_EQ(times.us_per_order(), 10) << "the first has what is done once";
  EXPECT_EQ(times.measured(), 0) << "nothing lies elsewhere";
  for (int i = 0; i < 3; ++i) times.add(with(4000, 500));
  EXPECT_DOUBLE_EQ(times.measured(), 4);
  EXPECT_DOUBLE_EQ(times.predicted(), 1.5);
  EXPECT_DOUBLE_EQ(times.now(), 4);
  EXPECT_DOUBLE_EQ(times.expected(10), 7) << "as much again costs as much again";
  EXPECT_DOUBLE_EQ(times.expected(2.5), 2.5);
  times.add(before(1000));
  EXPECT_EQ(times.steps(), 0u) << "all is back";
  EXPECT_DOUBLE_EQ(times.expected(5), 4) << "what was learnt of a use is kept";
}

TEST(StepTimes, AMeasurementHoldsWhereNoUseWasSeen) {
  StepTimes times;
  times.add(before(1000));
  times.add(with(20'000, 0));
  EXPECT_DOUBLE_EQ(times.measured(), 20);
  EXPECT_DOUBLE_EQ(times.expected(1), 20.1);
}

TEST(StepTimes, WithoutStepsBeforeTheRestOfThePredictionIsTheirs) {
  StepTimes times;
  for (int i = 0; i < 2; ++i) times.add(with(3000, 1000));
  EXPECT_EQ(times.measured(), 0);
  EXPECT_DOUBLE_EQ(times.us_per_order(), 20);
  EXPECT_DOUBLE_EQ(times.now(), 1.5);
  for (int i = 0; i < 8; ++i) times.add(with(3000, 9000));
  EXPECT_NEAR(times.now(), 20, 1) << "uses that take longer than the step were not as many";
  EXPECT_NEAR(times.predicted(), 20, 1);
}

}  // namespace
}  // namespace spillway::testing
