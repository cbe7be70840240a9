// Micro-batches under way on several devices, by the estimate, the planner and the moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/small_models.h"
#include "trainer/plan/device_map.h"
#include "trainer/plan/planner.h"
#include "trainer/plan/tapes/pipeline.h"

namespace spillway::trainer {
namespace {

// Products take nearly all of the time: launches and links cost nothing.
Machine machine_of(uint32_t devices) {
  return {.devices = devices,
          .flops = 1e9,
          .peer_bytes_per_second = 1e30,
          .memory_bytes_per_second = 1e30,
          .launch_seconds = 1e-30};
}

Plan spread_over(uint32_t devices, uint32_t pipeline, const Shape& shape) {
  Plan plan{.micro_batch = 1, .pipeline = pipeline};
  plan.placement = device_map_balanced(shape, plan, machine_of(devices), DeviceSpread::kBalancedTime);
  return plan;
}

TEST(Pipeline, OfEqualDevicesTakesTheTimeOfGPipe) {
  const Shape shape{.model = small_gpt2(32, 256, 4, 64), .batch = 16};
  const double plain = estimate(shape, spread_over(4, 1, shape), machine_of(4)).time.seconds();
  const double piped = estimate(shape, spread_over(4, 4, shape), machine_of(4)).time.seconds();
  EXPECT_NEAR(piped / plain, (16.0 + 3) / (16 * 4), 0.02);
  EXPECT_NEAR(estimate(shape, spread_over(4, 64, shape), machine_of(4)).time.seconds(), piped, 0.05 * piped);
  const double two = estimate(shape, spread_over(4, 2, shape), machine_of(4)).time.seconds();
  EXPECT_NEAR(two / plain, (1 + 15 / 2.0) / 16, 0.02) << "two at a time";
}

TEST(Pipeline, OfOneDeviceOrOneMicroBatchSavesNothing) {
  const Shape shape{.model = small_gpt2(4, 64, 4, 32), .batch = 4};
  const auto seconds = [&](Plan plan, uint32_t devices) {
    return estimate(shape, plan, machine_of(devices)).time.seconds();
  };
  EXPECT_EQ(seconds({.micro_batch = 1, .pipeline = 4}, 1), seconds({.micro_batch = 1}, 1));
  Plan whole = spread_over(2, 4, shape), alone = whole;
  whole.micro_batch = alone.micro_batch = 4, alone.pipeline = 1;
  EXPECT_EQ(seconds(whole, 2), seconds(alone, 2));
  EXPECT_EQ(in_flight(whole, 4), 1u);
}

// The launches of all devices are one thread's.
TEST(Pipeline, IsNoFasterThanTheHostLaunches) {
  const Shape shape{.model = small_gpt2(8, 32, 4, 16), .batch = 8};
  Machine machine{
      .devices = 2, .flops = 1e30, .peer_bytes_per_second = 1e30, .memory_bytes_per_second = 1e30};
  Plan plain{.micro_batch = 1}, piped{.micro_batch = 1, .pipeline = 4};
  plain.placement = piped.placement = device_map_even(shape.model, 2);
  EXPECT_NEAR(estimate(shape, piped, machine).time.seconds(), estimate(shape, plain, machine).time.seconds(),
              1e-6);
}

TEST(Pipeline, HoldsTheActivationsOfWhatIsUnderWay) {
  const Shape shape{.model = small_gpt2(8, 128, 4, 64), .batch = 16};
  const auto peaks = [&](uint32_t pipeline) {
    Plan plan{.micro_batch = 2, .pipeline = pipeline};
    plan.placement = device_map_even(shape.model, 2);
    return estimate(shape, plan, {.devices = 2}).device_peak_bytes;
  };
  uint64_t before = 0;
  for (const uint32_t pipeline : {1, 2, 3, 4}) {
    EXPECT_GT(peaks(pipeline)[0], before);
    before = peaks(pipeline)[0];
  }
  EXPECT_EQ(peaks(3)[1], peaks(8)[1]) << "on the last device no more than two are kept, and an input";
  EXPECT_LT(10 * (peaks(3)[1] - peaks(2)[1]), peaks(2)[1] - peaks(1)[1]);
}

// A forward on two devices, and its backward: what each piece has at most of each, and leaves there.
TEST(Pipeline, PeaksAreThoseOfItsSchedule) {
  const std::vector<Memory::Piece> pieces{{.peak = {6, 0}, .after = {4, 0}},
                                          {.peak = {4, 1}, .after = {4, 1}},
                                          {.peak = {4, 10}, .after = {4, 2}},
                                          {.peak = {5, 2}, .after = {5, 0}},
                                          {.peak = {7, 0}, .after = {1, 1}}};
  using Peaks = std::vector<uint64_t>;
  EXPECT_EQ(peaks_under_way(pieces, 1, 1), (Peaks{7, 10}));
  EXPECT_EQ(peaks_under_way(pieces, 5, 1), (Peaks{7, 10}));
  // In the third slot, with 4 of the second one, which is at the turn next.
  EXPECT_EQ(peaks_under_way(pieces, 2, 2), (Peaks{11, 10}));
  EXPECT_EQ(peaks_under_way(pieces, 9, 2), (Peaks{11, 10}));
  EXPECT_EQ(peaks_under_way(pieces, 9, 3), (Peaks{11, 10}));
  EXPECT_EQ(peaks_under_way(pieces, 100, 9), peaks_under_way(pieces, 9, 3)) << "it has three slots";
}

TEST(Pipeline, IsShortenedUntilOneIsLeft) {
  const Shape shape{.model = small_gpt2(4, 64, 4, 32), .batch = 8};
  Plan plan{.micro_batch = 1, .pipeline = 64};
  plan.placement = device_map_even(shape.model, 2);
  std::vector<uint32_t> lengths;
  for (bool more = true; more;) {
    more = false;
    for (const Move& move : neighbours(plan, shape, {.devices = 2}, Guarantee::kBitExact))
      if (move.kind == MoveKind::kShortenPipeline && !more) {
        EXPECT_GT(move.bytes_freed, 0u);
        plan = move.to, more = true;
        lengths.push_back(plan.pipeline);
      }
  }
  EXPECT_THAT(lengths, testing::ElementsAre(2, 1)) << "more than four are never under way on two devices";
}

TEST(Pipeline, IsOneWhereLayersPassToTheHost) {
  const Shape shape{.model = small_gpt2(8, 128, 4, 64), .batch = 8};
  Plan plan{.micro_batch = 1, .pipeline = 4};
  plan.placement = device_map_even(shape.model, 2);
  const auto expect_one = [&](Plan streams, const char* what) {
    EXPECT_EQ(normalised(streams).pipeline, 1u) << what;
    EXPECT_EQ(join(plan, streams).pipeline, 1u) << what;
    EXPECT_EQ(in_flight(streams, shape.batch), 1u) << what;
    const Estimate given = estimate(shape, streams, {.devices = 2});
    streams.pipeline = 1;
    const Estimate alone = estimate(shape, streams, {.devices = 2});
    EXPECT_EQ(given.device_peak_bytes, alone.device_peak_bytes) << what;
    EXPECT_EQ(given.step_us, alone.step_us) << what;
  };
  Plan parameters = plan, gradients = plan, activations = plan;
  parameters.parameters = Place::kHost, gradients.gradients = Place::kHost, activations.offload = {0};
  expect_one(parameters, "parameters"), expect_one(gradients, "gradients"),
      expect_one(activations, "offload");
  EXPECT_EQ(normalised(plan).pipeline, 4u);
}

TEST(Pipeline, IsShortenedBeforeLayersPassToTheHost) {
  Shape shape{.model = small_gpt2(8, 128, 4, 64), .batch = 8};
  shape.offload_least_bytes = 1;
  Plan plan{.micro_batch = 1, .pipeline = 4};
  plan.placement = device_map_even(shape.model, 2);
  const auto streams = [&] {
    return std::ranges::any_of(neighbours(plan, shape, {.devices = 2}, Guarantee::kBitExact),
                               [](const Move& move) { return move.to.streams(); });
  };
  EXPECT_FALSE(streams());
  plan.pipeline = 1;
  EXPECT_TRUE(streams());
}

TEST(Pipeline, IsPlannedWhereDevicesWouldWaitInTurn) {
  const Shape shape{.model = small_gpt2(16, 1024, 8, 512), .batch = 16};
  Machine machine{.devices = 2};
  const Plan from{.micro_batch = 1};
  machine.device_bytes = estimate(shape, from, machine).device_peak_bytes[0] * 7 / 10;
  const Planned planned = find_plan(shape, machine, Guarantee::kBitExact, from);
  ASSERT_TRUE(planned.best);
  const Plan best = planned.best->plan;
  EXPECT_GT(best.pipeline, 1u) << to_string(best);
  Plan alone = best;
  alone.pipeline = 1;
  EXPECT_GT(estimate(shape, alone, machine).time.seconds(), planned.best->time.seconds());
}

}  // namespace
}  // namespace spillway::trainer
