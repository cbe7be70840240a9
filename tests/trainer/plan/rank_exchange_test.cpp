// What ranks exchange in a step: its bytes by the formulas of ZeRO, its time over rings, and what of it is
// hidden.
#include "trainer/plan/ranks/exchange_time.h"

#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/planner.h"
#include "trainer/plan/stages/stage.h"

namespace spillway::trainer {
namespace {

Shape rank_of(uint32_t ranks, uint32_t zero, Numerics numerics = {}) {
  return {.model = small_model(Family::kLlama, 4, 256, 4, 128),
          .batch = 8,
          .numerics = numerics,
          .ranks = ranks,
          .zero = zero};
}

// A call takes 10 us, and the links 12 GB/s.
Machine simple_machine() {
  Machine machine;
  machine.rank_links = {
      .bytes_per_second = 12e9, .ranks_per_machine = 0, .protocols = {{.call_seconds = 10e-6}}};
  return machine;
}

TEST(RankLinks, ARingTakesItsStartItsStepsAndItsBytes) {
  RankLinks links{.bytes_per_second = 100e9,
                  .network_bytes_per_second = 10e9,
                  .ranks_per_machine = 4,
                  .protocols = {{.call_seconds = 1e-3, .step_seconds = 1e-4, .network_seconds = 1e-2}}};
  EXPECT_EQ(ring_seconds(links, 1, 1e9), 0);
  EXPECT_DOUBLE_EQ(ring_seconds(links, 4, 1e9), 1e-3 + 3 * 1e-4 + 0.75e9 / 100e9);
  // Of 11 steps two cross the network, whose four links share the rings.
  EXPECT_DOUBLE_EQ(ring_seconds(links, 12, 12e9), 1e-3 + 9 * 1e-4 + 2 * 1e-2 + 11e9 / 40e9);
}

// By src/graph/tuning.cc of NCCL 2.19: the bytes over the links' rate, and what is before them.
TEST(RankLinks, SmallMessagesTakeTheProtocolThatWaitsLess) {
  const RankLinks links;
  EXPECT_NEAR(ring_seconds(links, 8, 1), 6.6e-6 + 7 * 0.6e-6, 1e-9);
  EXPECT_NEAR(ring_seconds(links, 8, 80e9), 70.0 / 50, 1e-4);
  EXPECT_NEAR(ring_seconds(links, 1024, 1), 6.6e-6 + 896 * 1e-6 + 127 * 2.7e-6, 1e-9);
  // Over trees the steps grow with the logarithm of the machines.
  EXPECT_LT(tree_seconds(links, 1024, 1), 0.1 * ring_seconds(links, 1024, 1));
}

// With the bucket that few ranks have, 1,024 would wait in the steps of their rings most of the time.
TEST(RankExchange, ManyRanksHaveLargerRounds) {
  const Machine machine;
  const auto exchanged = [&](uint32_t ranks) {
    Shape shape = rank_of(ranks, 1);
    shape.model = Architecture::usual(Family::kLlama, 8, 4096, 32, 128);
    const StepTime time = estimate(shape, {.micro_batch = 8}, machine).time;
    return time.ranks + time.ranks_hidden;
  };
  EXPECT_LT(exchanged(1024), 1.3 * exchanged(64));
}

TEST(RankExchange, SendsTheBytesOfEachStageOfZero) {
  const double psi = 4.0 * double(parameter_count(rank_of(1, 0).model));
  double layers = 0;
  for (uint32_t layer = 0; layer < 4; ++layer)
    layers += 4.0 * double(layer_parameter_count(rank_of(1, 0).model, layer));
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    const double others = double(ranks - 1) / ranks;
    const auto sent = [&](uint32_t zero, uint32_t micro_batch) {
      const Plan plan{.micro_batch = micro_batch};
      return double(estimate(rank_of(ranks, zero), plan, simple_machine()).sent_bytes) / others;
    };
    EXPECT_NEAR(sent(0, 8) / (2 * psi), 1, 0.01);
    EXPECT_NEAR(sent(0, 2) / (2 * psi), 1, 0.01);
    EXPECT_NEAR(sent(1, 2) / (2 * psi), 1, 0.01);
    EXPECT_NEAR(sent(2, 8) / (2 * psi), 1, 0.01);
    EXPECT_NEAR(sent(2, 2) / (5 * psi), 1, 0.01);  // the sums of each of four micro-batches
    // Of eight units the forward's last two are there for the backward.
    EXPECT_NEAR(sent(3, 8) / (2 * psi + layers - layers / 4), 1, 0.01);
  }
  EXPECT_EQ(estimate(rank_of(1, 0), {}, simple_machine()).sent_bytes, 0u);
}

TEST(RankExchange, WeightsOf16BitsAreHalfOfTheirGradients) {
  const Numerics mixed{.precision = Precision::kBf16Mixed};
  const auto sent = [&](uint32_t zero) {
    return double(estimate(rank_of(4, zero, mixed), {.micro_batch = 8}, simple_machine()).sent_bytes);
  };
  EXPECT_NEAR(sent(1) / sent(0), 0.75, 0.01);
}

TEST(RankExchange, IsHiddenBesideTheBackwardButForTheEnd) {
  Machine machine = simple_machine();
  const auto time = [&](const Plan& plan, uint32_t zero = 0) {
    return estimate(rank_of(4, zero), plan, machine).time;
  };
  machine.flops = 1e11;  // there is time to hide it
  const StepTime slow = time({.micro_batch = 8});
  EXPECT_GT(slow.ranks_hidden, 0.6 * (slow.ranks + slow.ranks_hidden));
  EXPECT_GT(slow.ranks, 0);
  // What is kept on the host is added up behind the backward.
  const StepTime behind = time({.micro_batch = 8, .gradients = Place::kHost});
  EXPECT_NEAR(behind.ranks, slow.ranks + slow.ranks_hidden, 1e-9);
  EXPECT_EQ(behind.ranks_hidden, 0);
  // Smaller micro-batches leave less to hide it beside.
  EXPECT_GT(time({.micro_batch = 1}).ranks, slow.ranks);
  machine.flops = 1e15;
  const StepTime fast = time({.micro_batch = 8});
  EXPECT_GT(fast.ranks, slow.ranks);
  EXPECT_NEAR(fast.ranks + fast.ranks_hidden, slow.ranks + slow.ranks_hidden, 1e-9);
}

// Beside the updates behind them and the next forward, unless they are in slots at the update.
TEST(RankExchange, WeightsAreHiddenBesideTheNextForward) {
  Machine machine = simple_machine();
  const auto time = [&](uint32_t zero, Place parameters) {
    return estimate(rank_of(4, zero), {.micro_batch = 8, .parameters = parameters}, machine).time;
  };
  const auto all = [](const StepTime& time) { return time.ranks + time.ranks_hidden; };
  machine.flops = 1e11;
  for (const uint32_t zero : {1u, 2u}) {
    const StepTime beside = time(zero, Place::kDevice), behind = time(zero, Place::kHost);
    EXPECT_NEAR(all(beside), all(behind), 1e-9);
    // Half of what is exchanged are weights. What belongs to no layer is used first.
    EXPECT_LT(beside.ranks, behind.ranks - 0.3 * all(behind));
    EXPECT_GT(beside.ranks_hidden, 0.85 * all(beside));
  }
  EXPECT_LE(time(3, Place::kDevice).ranks, time(3, Place::kHost).ranks);
  machine.flops = 1e15, machine.memory_bytes_per_second = 1e15, machine.launch_seconds = 1e-9;
  const StepTime beside = time(1, Place::kDevice), behind = time(1, Place::kHost);
  EXPECT_NEAR(beside.ranks, behind.ranks, 0.02 * behind.ranks) << "there is nothing to hide them beside";
}

TEST(RankExchange, IsHiddenOnEachStageOfAPipeline) {
  Machine machine = simple_machine();
  machine.flops = 1e11;
  for (const uint32_t number : {0u, 1u}) {
    const auto time = [&](uint32_t ranks) {
      Shape shape = rank_of(ranks, 1);
      shape.stage = stage_of({2, 2}, number);
      return estimate(shape, {.micro_batch = 8, .recompute = {1, 2}}, machine).time;
    };
    const StepTime four = time(4);
    const double shown = four.ranks - time(1).ranks;  // that one waits for its neighbour alone
    EXPECT_GT(four.ranks_hidden, 0.8 * (shown + four.ranks_hidden)) << number;
  }
}

// What a layer is computed again of changes when the backward leaves it, and not how many parts it leaves.
TEST(RankExchange, HidesBesideEveryPlan) {
  Machine machine = simple_machine();
  machine.flops = 1e11;
  const StepTime plain = estimate(rank_of(4, 0), {.micro_batch = 8}, machine).time;
  Plan whole{.micro_batch = 8, .recompute = {0, 1, 2, 3}}, parts{.micro_batch = 8, .recompute_mlp = {0, 1}};
  Plan segments = whole;
  segments.recompute_segment = 2;
  for (const Plan& plan : {whole, parts, segments}) {
    const StepTime time = estimate(rank_of(4, 0), plan, machine).time;
    EXPECT_GE(time.ranks_hidden, 0.95 * plain.ranks_hidden) << to_string(plan);
    EXPECT_NEAR(time.ranks + time.ranks_hidden, plain.ranks + plain.ranks_hidden, 1e-9) << to_string(plan);
  }
}

TEST(RankExchange, ThePlannerCountsItInTheStep) {
  Machine machine = simple_machine();
  machine.device_bytes = uint64_t{1} << 30;
  const auto time = [&](uint32_t ranks, uint32_t zero) {
    const Planned planned = find_plan(rank_of(ranks, zero), machine, Guarantee::kNumericallyEqual, {});
    EXPECT_TRUE(planned.best);
    return planned.best->time;
  };
  const StepTime alone = time(1, 0), four = time(4, 0);
  EXPECT_EQ(alone.ranks, 0);
  EXPECT_GT(four.ranks, 0);
  EXPECT_DOUBLE_EQ(four.passes(), alone.passes());
}

}  // namespace
}  // namespace spillway::trainer
