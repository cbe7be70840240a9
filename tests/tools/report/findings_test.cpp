// What a history of memory tells: steps, and what grows with them.
#include "tools/spillway/history/findings/findings.h"

#include <gtest/gtest.h>

namespace spillway::tools {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Writes the events of a program, each at an address of its own.
class Program {
 public:
  Program() {
    history_.stacks.push_back({{"forward", "model.py", 7}});
    history_.stacks.push_back({{"keep", "train.py", 3}});
  }
  uint64_t take(uint64_t bytes, StackId stack = 1) {
    next_ += 64 * kMiB;
    add(Action::kAllocate, next_, bytes, stack);
    return next_;
  }
  void give(uint64_t address, uint64_t bytes) {
    add(Action::kFreeRequested, address, bytes, 1);
    add(Action::kFreeCompleted, address, bytes, 1);
  }
  // Activations in pieces, each with a temporary beside it, and all of them freed; `kept` stays.
  void step(uint64_t kept) {
    std::vector<uint64_t> pieces;
    for (int i = 0; i < 20; ++i) {
      pieces.push_back(take(5 * kMiB));
      give(take(4 * kMiB), 4 * kMiB);
    }
    for (const uint64_t piece : pieces) {
      give(take(3 * kMiB), 3 * kMiB);
      give(piece, 5 * kMiB);
    }
    if (kept != 0) take(kept, 2);
  }
  // Innermost frame first, as "function:line", all of one file.
  StackId stack(const std::vector<std::pair<const char*, int64_t>>& frames) {
    std::vector<StackFrame> stack;
    for (const auto& [function, line] : frames) stack.push_back({function, "train.py", line});
    history_.stacks.push_back(stack);
    return static_cast<StackId>(history_.stacks.size() - 1);
  }
  // Of a thread of autograd.
  StackId label(const char* text) {
    history_.stacks.push_back({{text, "", 0}});
    return static_cast<StackId>(history_.stacks.size() - 1);
  }
  void forget_pools_of_events() {
    for (HistoryEvent& event : history_.devices[0].events) event.pool = {};
  }
  // In a private pool, which keeps it for itself when it is freed.
  uint64_t take_in(PoolId pool, uint64_t bytes, StackId stack) {
    const uint64_t address = take(bytes, stack);
    history_.devices[0].events.back().pool = pool;
    history_.devices[0].segments.back().pool = pool;
    return address;
  }
  void free_in_its_pool(uint64_t address, uint64_t bytes) {
    auto segments = history_.devices[0].segments;
    give(address, bytes);
    for (HistorySegment& segment : segments)
      if (segment.address == address) segment.blocks[0].state = BlockState::kFree;
    history_.devices[0].segments = std::move(segments);
  }
  HistoryFindings fail(uint64_t bytes, StackId stack = 1, const Counted& counted = {}) {
    add(Action::kOutOfMemory, 0, bytes, stack);
    return look_into(history_, std::nullopt, counted).value_or(HistoryFindings{});
  }
  // Of the line that keeps: a tensor that is copied into one larger by `more`, again and again.
  void copy_larger(uint64_t bytes, uint64_t more, int times) {
    uint64_t tensor = take(bytes, 2);
    for (int i = 0; i < times; ++i) {
      const uint64_t larger = take(bytes + more, 2);
      give(tensor, bytes);
      bytes += more;
      tensor = larger;
    }
  }
  void is_of_spillway() { history_.of_spillway = true; }
  void take_before_the_history(uint64_t bytes) {
    take(bytes);
    history_.devices[0].events.pop_back();
  }

 private:
  void add(Action action, uint64_t address, uint64_t bytes, StackId stack) {
    HistoryEvent event;
    event.action = action;
    event.address = address;
    event.size = bytes;
    event.stack = stack;
    event.microseconds = ++now_;
    history_.devices[0].events.push_back(event);
    // What the snapshot would hold: rebuilt here as if it had been written now.
    auto& segments = history_.devices[0].segments;
    if (action == Action::kAllocate) {
      HistorySegment segment;
      segment.address = address;
      segment.size = bytes;
      segment.blocks.push_back({address, bytes, bytes, BlockState::kAllocated, stack});
      segments.push_back(segment);
    } else if (action == Action::kFreeCompleted) {
      std::erase_if(segments, [&](const HistorySegment& segment) { return segment.address == address; });
    }
  }

  MemoryHistory history_;
  uint64_t next_ = 0, now_ = 0;
};

TEST(Findings, StepsAreTheLargeWavesAndNotTheSmallOnesOnThem) {
  Program program;
  for (int i = 0; i < 12; ++i) program.step(0);
  EXPECT_EQ(program.fail(kMiB).steps, 12u);
}

TEST(Findings, WhatIsKeptOfEachStepGrows) {
  Program program;
  for (int i = 0; i < 12; ++i) program.step(2 * kMiB);
  const HistoryFindings found = program.fail(kMiB);
  EXPECT_EQ(found.steps, 12u);
  EXPECT_EQ(found.verdict.cause, Cause::kLeak);
  ASSERT_FALSE(found.holders.empty());
  EXPECT_EQ(found.holders[0].where, "train.py:3 keep");
  ASSERT_TRUE(found.holders[0].growth);
  EXPECT_EQ(found.holders[0].growth->bytes_per_step, 2 * kMiB);
}

TEST(Findings, PoolsThatHoldMuchAreNamedWithWhoAllocatedInThem) {
  Program program;
  for (int graph = 0; graph < 3; ++graph) {
    const PoolId pool{graph + 1, 0};
    program.free_in_its_pool(program.take_in(pool, 40 * kMiB, 2), 40 * kMiB);
    program.take_in(pool, 2 * kMiB, 1);
  }
  program.take_in({0, 7}, kMiB, 2);  // too little to tell
  program.take(30 * kMiB);
  const HistoryFindings found = program.fail(50 * kMiB);
  ASSERT_EQ(found.pools.size(), 3u);
  EXPECT_EQ(found.pools[0].held, 42 * kMiB);
  EXPECT_EQ(found.pools[0].in_use, 2 * kMiB);
  ASSERT_EQ(found.pools[0].places.size(), 2u);
  EXPECT_EQ(found.pools[0].places[0].place.where, "train.py:3 keep");
  EXPECT_EQ(found.pools[0].places[0].bytes, 40 * kMiB);
  EXPECT_EQ(found.verdict.cause, Cause::kPoolIsolation);
  EXPECT_EQ(found.remark,
            "; 3 pools hold 126.00 MiB, the largest is pool 1 with 42.00 MiB, allocated by train.py:3 keep");
}

// Before PyTorch said the pool of an event, only the segments had one.
TEST(Findings, AnEventWithoutAPoolIsOfThatWhichHasItsAddress) {
  Program program;
  const uint64_t block = program.take_in({0, 7}, 40 * kMiB, 2);
  program.free_in_its_pool(block, 40 * kMiB);
  program.forget_pools_of_events();
  const HistoryFindings found = program.fail(50 * kMiB);
  ASSERT_EQ(found.pools.size(), 1u);
  EXPECT_EQ(pool_text(found.pools[0].pool), "pool (0, 7)");
  ASSERT_EQ(found.pools[0].places.size(), 1u);
  EXPECT_EQ(found.pools[0].places[0].place.where, "train.py:3 keep");
}

TEST(Findings, OneLargeFallBeforeTheStepsDoesNotHideThem) {
  Program program;
  const uint64_t twice = program.take(4000 * kMiB);  // a model that is loaded, and converted
  program.give(twice, 4000 * kMiB);
  for (int i = 0; i < 12; ++i) program.step(2 * kMiB);
  const uint64_t steps = program.fail(kMiB).steps;
  EXPECT_GE(steps, 12u);
  EXPECT_LE(steps, 13u);
}

// An inference: each layer's result goes when the next one is there, so that no wave is larger than another.
TEST(Findings, WhatIsKeptOfEveryFewWavesGrowsAllTheSame) {
  Program program;
  for (int batch = 0; batch < 20; ++batch) {
    uint64_t last = program.take(8 * kMiB);
    for (int layer = 0; layer < 6; ++layer) {
      const uint64_t next = program.take(8 * kMiB);
      program.give(last, 8 * kMiB);
      last = next;
    }
    program.give(last, 8 * kMiB);
    program.take(7 * kMiB, 2);
  }
  const HistoryFindings found = program.fail(8 * kMiB);
  EXPECT_EQ(found.verdict.cause, Cause::kLeak);
  ASSERT_FALSE(found.holders.empty());
  ASSERT_TRUE(found.holders[0].growth);
  EXPECT_EQ(found.holders[0].growth->bytes_per_step, 7 * kMiB);
}

TEST(Findings, WhatTheFirstStepsMakeDoesNotGrow) {
  Program program;
  for (int i = 0; i < 40; ++i) program.step(i < 8 ? 2 * kMiB : 0);
  const HistoryFindings found = program.fail(kMiB);
  EXPECT_NE(found.verdict.cause, Cause::kLeak);
  for (const Holder& holder : found.holders) EXPECT_FALSE(holder.growth) << holder.where;
}

// A first step: gradients are made one after the other, and a small activation goes with each.
TEST(Findings, WhatIsMadeOnceIsNoLeakHoweverManyWavesThereAre) {
  Program program;
  std::vector<uint64_t> activations;
  for (int layer = 0; layer < 24; ++layer) {
    program.take(16 * kMiB, 1);
    activations.push_back(program.take(kMiB, 1));
  }
  for (const uint64_t activation : activations) {
    program.take(16 * kMiB, 2);
    program.give(program.take(2 * kMiB), 2 * kMiB);
    program.give(activation, kMiB);
  }
  const HistoryFindings found = program.fail(16 * kMiB);
  EXPECT_NE(found.verdict.cause, Cause::kLeak) << found.verdict.text;
  EXPECT_EQ(found.remark, "");
}

// A generation: each layer's keys and values are copied into a larger tensor at each token.
TEST(Findings, WhatIsReplacedBySomethingLargerGrows) {
  Program program;
  uint64_t layers[4] = {program.take(kMiB, 2), program.take(kMiB, 2), program.take(kMiB, 2),
                        program.take(kMiB, 2)};
  for (uint64_t token = 1; token < 100; ++token)
    for (uint64_t& layer : layers) {
      const uint64_t larger = program.take((token + 1) * kMiB, 2);
      program.give(layer, token * kMiB);
      layer = larger;
      program.give(program.take(kMiB), kMiB);
    }
  const HistoryFindings found = program.fail(100 * kMiB);
  EXPECT_EQ(found.verdict.cause, Cause::kGrowth) << found.verdict.text;
  ASSERT_TRUE(found.holders[0].growth);
  EXPECT_TRUE(found.holders[0].growth->replaced);
  EXPECT_NEAR(static_cast<double>(found.holders[0].growth->bytes_per_step) / kMiB, 4, 0.2);
}

// Two lines whose blocks are alike: which of them a block counts to is chance.
HistoryFindings two_lines_that_grow(bool is_sample) {
  constexpr uint64_t kPiece = kMiB / 8;
  Program program;
  const StackId keys = program.stack({{"attend", 11}}), values = program.stack({{"attend", 12}});
  const auto either = [&](uint64_t token, uint64_t layer) {
    if (token % 5 < 2) return token % 5 == 0 ? keys : values;
    return layer == 0 ? keys : values;
  };
  uint64_t layers[2] = {program.take(kPiece, keys), program.take(kPiece, values)};
  for (uint64_t token = 1; token < 200; ++token)
    for (uint64_t layer = 0; layer < 2; ++layer) {
      const uint64_t larger = program.take((token + 1) * kPiece, either(token, layer));
      program.give(layers[layer], token * kPiece);
      layers[layer] = larger;
    }
  if (is_sample) program.is_of_spillway();
  return program.fail(200 * kPiece, keys);
}

TEST(Findings, LinesThatCannotBeToldApartGrowTogether) {
  const HistoryFindings found = two_lines_that_grow(true);
  EXPECT_EQ(found.verdict.cause, Cause::kGrowth) << found.verdict.text;
  for (const Holder& holder : found.holders) EXPECT_TRUE(holder.growth) << holder.where;
  EXPECT_NE(two_lines_that_grow(false).verdict.cause, Cause::kGrowth)
      << "there each line's own course counts";
}

TEST(Findings, OfAHistoryThatIsCutAllThatAPlaceHoldsHasGrown) {
  Program program;
  for (int i = 0; i < 4; ++i) program.take_before_the_history(10 * kMiB);
  program.copy_larger(30 * kMiB, kMiB / 16, 59);
  EXPECT_EQ(program.fail(40 * kMiB, 2).verdict.cause, Cause::kGrowth);
}

TEST(Findings, OfAHistoryThatIsCutWhatCameLaterHasGrownByWhatIsSeen) {
  Program program;
  for (int i = 0; i < 4; ++i) program.take_before_the_history(50 * kMiB);
  for (int i = 0; i < 60; ++i) program.give(program.take(kMiB), kMiB);
  program.copy_larger(60 * kMiB, kMiB / 16, 59);
  EXPECT_NE(program.fail(50 * kMiB, 1).verdict.cause, Cause::kGrowth);
}

TEST(Findings, TheAllocatorsCountGoesBeforeWhatIsLeftOfTheHistory) {
  Program program;
  for (int i = 0; i < 12; ++i) program.step(kMiB);
  const Holder weights{"old.py:1 make", "", 300 * kMiB, 3, {}, {}},
      keep{"train.py:3 keep", "", 12 * kMiB, 12, {}, {}};
  const HistoryFindings found = program.fail(8 * kMiB, 1, {{keep, weights}, 400 * kMiB});
  ASSERT_EQ(found.holders.size(), 2u);
  EXPECT_EQ(found.holders[0].where, "old.py:1 make");
  EXPECT_FALSE(found.holders[0].growth);
  EXPECT_TRUE(found.holders[1].growth) << "by name, not by place in the list";
  EXPECT_TRUE(found.holders[1].oldest_us);
  EXPECT_EQ(found.holdings.in_use, 400 * kMiB);
  uint64_t held = 0;
  for (const Holder& holder : found.holders) held += holder.bytes;
  EXPECT_LE(held, found.holdings.in_use);
}

TEST(Findings, WhatAHistoryHasLostCountsToItsPlaces) {
  Program program;
  for (int i = 0; i < 12; ++i) program.step(kMiB);
  const Holder keep{"train.py:3 keep", "", 500 * kMiB, 500, {}, {}},
      other{"old.py:1 make", "", 7 * kMiB, 1, {}, {}};
  const HistoryFindings found = program.fail(8 * kMiB, 1, {{keep, other}, 507 * kMiB});
  ASSERT_EQ(found.holders.size(), 2u);
  EXPECT_EQ(found.holders[0].bytes, 500 * kMiB);
  EXPECT_FALSE(found.holders[0].oldest_us);
  EXPECT_EQ(found.holders[1].where, "old.py:1 make");
  EXPECT_EQ(found.verdict.text,
            "500.00 MiB in 500 blocks of train.py:3 keep were kept: 1.00 MiB more after each step");
}

// An evaluation after a training: what it collects is copied into a larger tensor with each batch.
TEST(Findings, WhatIsReplacedGrowsThoughItBeganLate) {
  Program program;
  for (int i = 0; i < 12; ++i) program.step(0);
  uint64_t kept = program.take(20 * kMiB, 2);
  for (uint64_t batch = 1; batch < 20; ++batch) {
    program.step(0);
    const uint64_t larger = program.take((batch + 1) * 20 * kMiB, 2);
    program.give(kept, batch * 20 * kMiB);
    kept = larger;
  }
  const HistoryFindings found = program.fail(420 * kMiB, 2);
  EXPECT_EQ(found.verdict.cause, Cause::kGrowth) << found.verdict.text;
  EXPECT_NE(found.verdict.text.find("train.py:3 keep"), std::string::npos) << found.verdict.text;
}

// The hidden state of a recurrent network keeps the graph of all that came before.
TEST(Findings, WhatEachPassOfTheLoopKeepsGrows) {
  Program program;
  const StackId read = program.stack({{"main", 29}, {"<module>", 40}});
  const StackId forward = program.stack({{"forward", 15}, {"main", 30}, {"<module>", 40}});
  for (int chunk = 0; chunk < 12; ++chunk) {
    program.take(2 * kMiB, read);
    for (int piece = 0; piece < 3; ++piece) program.take(50 * kMiB, forward);
  }
  const HistoryFindings found = program.fail(60 * kMiB, forward);
  EXPECT_EQ(found.verdict.cause, Cause::kGrowth);
  EXPECT_EQ(
      found.verdict.text,
      "1.76 GiB in 36 blocks of train.py:15 forward from train.py:30 main were kept: 150.00 MiB more after "
      "each of 12 passes of the loop at train.py:30 main");
  EXPECT_EQ(found.steps, 12u);
}

TEST(Findings, OfFewPassesItIsOnlySaidWhatTheyLeft) {
  Program program;
  const StackId copy = program.stack({{"explain", 40}, {"main", 51}});
  const StackId keep = program.stack({{"keep", 22}, {"forward", 18}, {"explain", 41}, {"main", 51}});
  for (int model = 0; model < 4; ++model) {
    program.take(2 * kMiB, copy);
    for (int layer = 0; layer < (model < 3 ? 7 : 6); ++layer) program.take(64 * kMiB, keep);
  }
  const HistoryFindings found = program.fail(64 * kMiB, keep);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity);
  EXPECT_EQ(found.remark,
            "; 896.00 MiB of that were allocated in earlier passes of the loop at train.py:41 explain and "
            "are kept");
}

TEST(Findings, AModelThatIsBuiltInALoopDoesNotGrow) {
  Program program;
  const StackId weights = program.stack({{"__init__", 9}, {"main", 20}});
  const StackId norms = program.stack({{"__init__", 9}, {"main", 21}});
  for (int layer = 0; layer < 40; ++layer) {
    program.take(50 * kMiB, weights);
    program.take(10 * kMiB, norms);
  }
  const HistoryFindings found = program.fail(50 * kMiB, weights);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity) << found.verdict.text;
  EXPECT_EQ(found.remark, "");
}

TEST(Findings, AnOptimizersStatesInTheFirstStepDoNotGrow) {
  Program program;
  const StackId forward = program.stack({{"forward", 15}, {"main", 30}});
  const StackId first = program.stack({{"step", 70}, {"main", 32}});
  const StackId second = program.stack({{"step", 71}, {"main", 32}});
  for (int layer = 0; layer < 20; ++layer) program.give(program.take(50 * kMiB, forward), 50 * kMiB);
  for (int parameter = 0; parameter < 40; ++parameter) {
    program.take(50 * kMiB, first);
    program.take(50 * kMiB, second);
  }
  const HistoryFindings found = program.fail(50 * kMiB, first);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity) << found.verdict.text;
  EXPECT_EQ(found.remark.find("passes"), std::string::npos) << found.remark;
}

TEST(Findings, TheLayersOfAFirstForwardPassDoNotGrow) {
  Program program;
  const StackId norm = program.stack({{"forward", 3}, {"forward", 15}, {"main", 30}});
  const StackId attention = program.stack({{"forward", 5}, {"forward", 16}, {"main", 30}});
  for (int layer = 0; layer < 40; ++layer) {
    program.take(10 * kMiB, norm);
    program.take(50 * kMiB, attention);
  }
  const HistoryFindings found = program.fail(50 * kMiB, attention);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity) << found.verdict.text;
  EXPECT_EQ(found.remark, "");
}

TEST(Findings, TheLayersOfAFirstForwardPassDoNotGrowWhateverTheyComputeWith) {
  Program program;
  const StackId activation = program.stack({{"forward", 3}, {"forward", 15}, {"main", 30}});
  for (int layer = 0; layer < 12; ++layer) {
    for (int piece = 0; piece < 4; ++piece) {
      program.take(50 * kMiB, activation);
      program.give(program.take(30 * kMiB, activation), 30 * kMiB);
    }
    program.give(program.take(90 * kMiB, activation), 90 * kMiB);
  }
  const HistoryFindings found = program.fail(50 * kMiB, activation);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity) << found.verdict.text;
  ASSERT_FALSE(found.holders.empty());
  EXPECT_FALSE(found.holders[0].growth);
}

TEST(Findings, ThreeWavesThatKeepMostOfWhatTheyRiseByAreNoSteps) {
  Program program;
  for (int layer = 0; layer < 3; ++layer) {
    for (int piece = 0; piece < 4; ++piece) program.take(50 * kMiB);
    const uint64_t one = program.take(130 * kMiB), other = program.take(130 * kMiB);
    program.give(one, 130 * kMiB);
    program.give(other, 130 * kMiB);
  }
  EXPECT_EQ(program.fail(50 * kMiB).steps, 0u);
}

TEST(Findings, TheGradientsOfAFirstBackwardPassThatRecomputesDoNotGrow) {
  Program program;
  const StackId activation = program.stack({{"forward", 3}, {"forward", 15}});
  const StackId gradient = program.label("backward of AddmmBackward0");
  for (int layer = 0; layer < 24; ++layer) {
    std::vector<uint64_t> pieces;
    for (int piece = 0; piece < 4; ++piece) pieces.push_back(program.take(50 * kMiB, activation));
    program.take(10 * kMiB, gradient);
    for (const uint64_t piece : pieces) program.give(piece, 50 * kMiB);
  }
  const HistoryFindings found = program.fail(50 * kMiB, activation);
  EXPECT_EQ(found.verdict.cause, Cause::kCapacity) << found.verdict.text;
  EXPECT_GE(found.steps, 20u);
}

TEST(Findings, WhatOnlyGetsLargerForAWhileDoesNotGrow) {
  Program program;
  uint64_t cache = program.take(kMiB, 2);
  for (uint64_t token = 1; token < 100; ++token) {
    const uint64_t before = std::min<uint64_t>(token, 50), after = std::min<uint64_t>(token + 1, 50);
    const uint64_t larger = program.take(after * kMiB, 2);
    program.give(cache, before * kMiB);
    cache = larger;
  }
  EXPECT_NE(program.fail(10 * kMiB).verdict.cause, Cause::kGrowth);
}

TEST(Findings, AStepThatTakesFarMoreThanTheOthersIsSaid) {
  Program program;
  for (int i = 0; i < 6; ++i) program.step(0);
  for (int i = 0; i < 60; ++i) program.take(10 * kMiB);
  const HistoryFindings found = program.fail(100 * kMiB);
  EXPECT_EQ(found.remark, "; this step takes 700.00 MiB, and none before it took more than 104.00 MiB");
}

TEST(Findings, AProgramThatOnlyTakesHasNoSteps) {
  Program program;
  for (int i = 0; i < 50; ++i) program.take(kMiB);
  EXPECT_EQ(program.fail(kMiB).steps, 0u);
}

// PyTorch's allocator takes 20 MiB for what is smaller than 10.
TEST(Findings, AFreeCardWithoutRoomForASegmentIsSaid) {
  const auto said = [](uint64_t idle, uint64_t request) {
    MemoryHistory history;
    HistorySegment segment;
    segment.address = 64 * kMiB, segment.size = 19 * kMiB + idle;
    segment.blocks.push_back({64 * kMiB, 19 * kMiB, 19 * kMiB, BlockState::kAllocated});
    if (idle > 0) segment.blocks.push_back({83 * kMiB, idle, idle, BlockState::kFree});
    history.devices[0].segments.push_back(segment);
    HistoryEvent event;
    event.action = Action::kOutOfMemory;
    event.address = 14 * kMiB;  // free on the card
    event.size = request;
    history.devices[0].events.push_back(event);
    return look_into(history, std::nullopt).value_or(HistoryFindings{}).verdict;
  };
  const Verdict whole = said(kMiB, 8 * kMiB);
  EXPECT_EQ(whole.cause, Cause::kFragmentation);
  EXPECT_EQ(
      whole.text,
      "14.00 MiB of the card were free, but for 8.00 MiB the allocator takes a segment of 20.00 MiB; its "
      "largest idle piece is 1.00 MiB");
  EXPECT_EQ(said(0, 8 * kMiB).text,
            "14.00 MiB of the card were free, but for 8.00 MiB the allocator takes a segment of 20.00 MiB");
  EXPECT_NE(said(kMiB, 15 * kMiB).text.find("in pieces of at most 14.00 MiB"), std::string::npos);
}

// A segment of 100 MiB, and one of 60: blocks of 8 and 2 MiB lie between free pieces of 40, 40 and 10 MiB,
// and one of 20 MiB in the middle of the other.
MemoryHistory in_pieces(bool expandable) {
  MemoryHistory history;
  history.stacks.push_back({{"forward", "model.py", 7}, {"main", "train.py", 30}});
  history.stacks.push_back({{"keep", "train.py", 3}});
  HistorySegment first, second;
  first.size = 100 * kMiB;
  second.address = 100 * kMiB;
  second.size = 60 * kMiB;
  first.blocks = {{40 * kMiB, 8 * kMiB, 8 * kMiB, BlockState::kAllocated, 1},
                  {88 * kMiB, 2 * kMiB, 2 * kMiB, BlockState::kAllocated, 2}};
  second.blocks = {{120 * kMiB, 20 * kMiB, 20 * kMiB, BlockState::kAllocated, 1}};
  first.expandable = second.expandable = expandable;
  DeviceHistory& device = history.devices[0];
  device.segments = {first, second};
  device.events.resize(1);
  device.events[0].action = Action::kOutOfMemory;
  device.events[0].size = 45 * kMiB;
  return history;
}

TEST(Findings, OfFragmentationItIsSaidWhatLiesBetweenTheFreePieces) {
  const MemoryHistory history = in_pieces(false);
  const HistoryFindings found = look_into(history, std::nullopt).value_or(HistoryFindings{});
  EXPECT_EQ(found.verdict.cause, Cause::kFragmentation);
  ASSERT_EQ(found.near_holes.size(), 2u) << "in each segment the best one";
  const NearHole& best = found.near_holes[0];
  EXPECT_EQ(best.address, 48 * kMiB);
  EXPECT_EQ(best.bytes, 52 * kMiB);
  EXPECT_EQ(best.free_bytes, 50 * kMiB);
  EXPECT_EQ(best.in_the_way, 2 * kMiB);
  EXPECT_EQ(best.blocks, 1u);
  ASSERT_EQ(best.places.size(), 1u);
  EXPECT_EQ(best.places[0].place.where, "train.py:3 keep");
  EXPECT_EQ(found.near_holes[1].bytes, 60 * kMiB);
  EXPECT_EQ(found.near_holes[1].places[0].place.caller, "train.py:30 main");
}

TEST(Findings, PartsOfAnExpandableSegmentThatTouchAreOnePiece) {
  const MemoryHistory history = in_pieces(true);
  const HistoryFindings found = look_into(history, std::nullopt).value_or(HistoryFindings{});
  ASSERT_EQ(found.near_holes.size(), 1u);
  EXPECT_EQ(found.near_holes[0].bytes, 72 * kMiB) << "on into the next part, up to its block";
  EXPECT_EQ(found.near_holes[0].in_the_way, 2 * kMiB);
}

TEST(Findings, WhatIsFreeInOnePieceIsNoFragmentation) {
  MemoryHistory history = in_pieces(false);
  history.devices[0].events[0].size = 200 * kMiB;
  EXPECT_TRUE(look_into(history, std::nullopt).value_or(HistoryFindings{}).near_holes.empty());
}

TEST(Findings, WhatMadeTheMemoryIsSeenInItsStacks) {
  Program program;
  const StackId model = program.stack({{"__init__", 9}, {"main", 20}});
  const StackId forward = program.stack({{"linear", 5}, {"forward", 16}, {"main", 30}});
  const StackId metric = program.stack({{"update", 40}, {"main", 31}});
  program.take(30 * kMiB, model);
  for (int layer = 0; layer < 4; ++layer) program.take(50 * kMiB, forward);
  program.take(10 * kMiB, forward);
  program.take(kMiB, metric);
  program.take(2 * kMiB, 0);  // on a thread of autograd
  const HistoryFindings found = program.fail(500 * kMiB, forward);
  ASSERT_EQ(found.kinds.size(), 4u);
  EXPECT_EQ(found.kinds[0].purpose, Purpose::kForward);
  EXPECT_EQ(found.kinds[0].bytes, 210 * kMiB);
  ASSERT_EQ(found.kinds[0].sizes.size(), 2u);
  EXPECT_EQ(found.kinds[0].sizes[0].block_bytes, 50 * kMiB);
  EXPECT_EQ(found.kinds[0].sizes[0].blocks, 4u);
  EXPECT_EQ(found.kinds[1].purpose, Purpose::kModel);
  EXPECT_EQ(found.kinds[2].purpose, Purpose::kBackward);
  EXPECT_EQ(found.kinds[3].purpose, Purpose::kOther);
}

// Of a damaged file: what its segments have is less than what lies in them and beside them.
TEST(Findings, TheSumClosesWhereABlockLiesInNoSegment) {
  MemoryHistory history;
  HistorySegment segment;
  segment.size = 4 * kMiB;
  segment.blocks.push_back({0, kMiB, kMiB, BlockState::kAllocated, 0});
  segment.blocks.push_back({64 * kMiB, kMiB, kMiB, BlockState::kAllocated, 0});
  history.devices[0].segments.push_back(segment);
  const HistoryFindings found = look_into(history, std::nullopt).value_or(HistoryFindings{});
  const Holdings& at = found.holdings;
  EXPECT_EQ(at.in_use, 2 * kMiB);
  EXPECT_EQ(at.reserved, at.in_use + at.rounding + at.pending + at.idle + at.elsewhere);
  EXPECT_EQ(found.contradictions, 1u);
}

}  // namespace
}  // namespace spillway::tools
