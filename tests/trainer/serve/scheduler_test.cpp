// Which sequences run, by the blocks that there are: in order of age, pre-empted from the youngest on.
#include "trainer/serve/batching/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace spillway::trainer::serve {
namespace {

using testing::ElementsAre;

struct Batching : testing::Test {
  void start(uint32_t blocks, const BatchLimits& limits = {}) {
    pool = std::make_unique<BlockPool>(blocks);
    scheduler = std::make_unique<Scheduler>(pool.get(), limits);
  }
  void add(uint64_t id, size_t tokens, uint32_t more, size_t source = 0) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->tokens.assign(tokens, 1);
    sequence->source.assign(source, 1);
    sequence->most_tokens = uint32_t(tokens) + more;
    ASSERT_TRUE(scheduler->fits(*sequence));
    scheduler->add(std::move(sequence));
  }
  // One step: the ids of its segments, and how many tokens each has. Sequences that end leave.
  std::vector<std::pair<uint64_t, uint64_t>> step() {
    if (++steps > 20000) throw std::runtime_error("it does not come to an end");
    std::vector<std::pair<uint64_t, uint64_t>> seen;
    std::vector<uint64_t> ended;
    check_blocks(scheduler->next(), &seen, &ended);
    scheduler->succeeded();
    for (const uint64_t id : ended) {
      EXPECT_TRUE(scheduler->remove(id));
      finished.push_back(id);
    }
    return seen;
  }
  void check_blocks(const std::vector<Segment>& batch, std::vector<std::pair<uint64_t, uint64_t>>* seen,
                    std::vector<uint64_t>* ended) {
    std::set<uint32_t> taken;
    for (const Segment& segment : batch) {
      Sequence& sequence = *segment.sequence;
      EXPECT_GE(sequence.blocks.size() * kBlockTokens, sequence.cached + segment.tokens);
      for (const auto* blocks : {&sequence.blocks, &sequence.source_blocks})
        for (const uint32_t block : *blocks) EXPECT_TRUE(taken.insert(block).second) << "of two sequences";
      seen->emplace_back(sequence.id, segment.tokens);
      const bool reaches = segment.reaches_end();
      Scheduler::computed(segment);
      if (reaches) sequence.tokens.push_back(1);
      if (sequence.tokens.size() >= sequence.most_tokens) ended->push_back(sequence.id);
    }
  }
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<uint64_t> finished;
  uint64_t steps = 0;
};

using Step = std::vector<std::pair<uint64_t, uint64_t>>;

TEST_F(Batching, SequencesJoinAndLeaveAtEachStep) {
  start(8);
  add(1, 5, 2);
  EXPECT_EQ(step(), (Step{{1, 5}}));
  add(2, 20, 1);
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 20}}));
  EXPECT_THAT(finished, ElementsAre(1, 2));
  EXPECT_EQ(step(), Step{});
  EXPECT_EQ(pool->free(), 8u);
}

TEST_F(Batching, LongPromptTakesSeveralStepsAndOthersGoOn) {
  start(64, {.sequences = 8, .prefill_tokens = 32});
  add(1, 4, 9);
  step();
  add(2, 70, 3);
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 32}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 32}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 6}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}}));
}

TEST_F(Batching, YoungestIsPreemptedAndComputedAgainFromItsStart) {
  start(4);
  add(1, 16, 17);
  add(2, 15, 8);
  EXPECT_EQ(step(), (Step{{1, 16}, {2, 15}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}}));
  add(3, 40, 1);  // three blocks: it waits for them
  while (scheduler->preemptions() == 0 && finished.empty()) step();
  EXPECT_EQ(scheduler->preemptions(), 0u) << "two blocks each were enough";
  while (finished.size() < 3) ASSERT_FALSE(step().empty());
  EXPECT_EQ(pool->free(), 4u);

  start(3);
  finished.clear();
  add(1, 16, 20);
  add(2, 10, 30);
  Step last;
  while (scheduler->preemptions() == 0) last = step();
  EXPECT_EQ(last, (Step{{1, 1}}));
  EXPECT_EQ(scheduler->waiting(), 1u);
  uint64_t again = 0;
  while (finished.size() < 2)
    for (const auto& [id, tokens] : step())
      if (id == 2 && tokens > 1) again = tokens;
  EXPECT_GT(again, 10u) << "with the tokens that it had made";
  EXPECT_THAT(finished, ElementsAre(1, 2));
}

TEST_F(Batching, EveryPoolThatHoldsTheLargestFinishesAll) {
  for (uint32_t blocks = 7; blocks < 30; ++blocks) {
    start(blocks, {.sequences = 1 + blocks % 5, .prefill_tokens = 16 + blocks});
    finished.clear();
    for (uint64_t id = 1; id <= 17; ++id)
      add(id, 1 + id * 7 % 40, uint32_t(1 + id * 13 % 50), id % 3 ? 0 : 10);
    while (finished.size() < 17) ASSERT_FALSE(step().empty()) << blocks << " blocks";
    EXPECT_EQ(pool->free(), blocks);
  }
}

TEST_F(Batching, SequenceThatCanNeverFitIsKnown) {
  start(3);
  Sequence sequence;
  sequence.most_tokens = 48;
  EXPECT_TRUE(scheduler->fits(sequence));
  sequence.source.assign(1, 1);
  EXPECT_FALSE(scheduler->fits(sequence));
}

TEST_F(Batching, StepWithoutMemoryIsLightenedAndGrowsBack) {
  start(64, {.sequences = 4, .prefill_tokens = 64});
  for (uint64_t id = 1; id <= 3; ++id) add(id, 30, 200);
  ASSERT_EQ(scheduler->next().size(), 3u);
  EXPECT_EQ(scheduler->relieve(), Scheduler::Relief::kPreempted);
  EXPECT_EQ(scheduler->relieve(), Scheduler::Relief::kPreempted);
  EXPECT_EQ(step(), (Step{{1, 30}})) << "no other joins";
  EXPECT_EQ(scheduler->relieve(), Scheduler::Relief::kSmallerPrefill);
  EXPECT_EQ(scheduler->relieve(), Scheduler::Relief::kSmallerPrefill);
  EXPECT_EQ(scheduler->relieve(), Scheduler::Relief::kNone);
  for (uint32_t i = 0; i < Scheduler::kQuietSteps; ++i) EXPECT_EQ(step(), (Step{{1, 1}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 30}}));
  for (uint32_t i = 0; i < 3 * Scheduler::kQuietSteps; ++i) step();
  EXPECT_EQ(scheduler->now().sequences, 4u);
  EXPECT_EQ(scheduler->now().prefill_tokens, 64u);
}

}  // namespace
}  // namespace spillway::trainer::serve
