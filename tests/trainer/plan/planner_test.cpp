// The planner against an exhaustive search with the same estimate, over shapes and limits.
#include "trainer/plan/planner.h"
#include "trainer/plan/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/sanitized.h"
#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

constexpr unsigned kSample = kSanitized ? 12 : 1;  // every one of so many limits

struct GridCase {
  const char* name;
  Shape shape;
  uint32_t devices;
};

std::vector<GridCase> grid_cases() {
  Architecture llama = small_model(Family::kLlama, 4, 256, 4, 128);
  llama.key_value_heads = 2;
  llama.vocabulary = 8000;
  Architecture t5 = small_model(Family::kT5, 2, 128, 2, 64);
  t5.gated = true;
  return {{"gpt2", {small_gpt2(6, 128, 4, 64), 12}, 1},
          {"gpt2 on two", {small_gpt2(5, 256, 4, 128), 7}, 2},
          {"llama", {llama, 8}, 2},
          {"t5", {t5, 10}, 1}};
}

uint64_t with_margin(uint64_t bytes) {
  return bytes + uint64_t(double(bytes) * kPlannerMargin) + kPlannerPages;
}

bool fits(const Estimate& needed, uint64_t limit) {
  const auto within = [limit](uint64_t peak) { return with_margin(peak) <= limit; };
  return std::ranges::all_of(needed.device_peak_bytes, within) &&
         std::ranges::all_of(needed.evaluation_peak_bytes, within);
}

// Of every micro-batch, number of layers that are recomputed or of which a part is, how much is on the host,
// place to cut the layers in two, and the head whole or in chunks: seconds of a step beside the bytes that it
// needs.
struct Point {
  uint64_t needs = 0;
  double seconds = 0;
};

Point point_of(const Estimate& needed) {
  return {
      std::max(std::ranges::max(needed.device_peak_bytes), std::ranges::max(needed.evaluation_peak_bytes)),
      needed.time.seconds()};
}

std::vector<Point> exhaustive(const GridCase& grid, const Machine& machine) {
  std::vector<Point> points;
  Estimator estimator(grid.shape, machine);
  const uint32_t layers = grid.shape.layers();
  for (uint32_t micro_batch = 1; micro_batch <= grid.shape.batch; ++micro_batch)
    for (uint32_t recomputed = 0; recomputed <= layers; ++recomputed)
      for (int on_host = 0; on_host <= 3; ++on_host)
        for (uint32_t cut = machine.devices > 1 ? 0 : layers; cut <= layers; ++cut) {
          Plan plan{.micro_batch = micro_batch};
          if (on_host >= 1) plan.optimizer = Place::kHost;
          if (on_host >= 2) plan.gradients = Place::kHost;
          if (on_host >= 3) plan.parameters = Place::kHost;
          for (uint32_t layer = cut; layer < layers; ++layer) plan.placement[layer] = 1;
          std::vector<Plan> tilings{plan};
          if (tile_layers(&plan, grid.shape)) tilings.push_back(plan);
          for (const Plan& tiled : tilings)
            for (const auto what : {&Plan::recompute, &Plan::recompute_mlp, &Plan::recompute_attention}) {
              if (what != &Plan::recompute && recomputed == 0) continue;
              Plan again = tiled;
              for (uint32_t layer = 0; layer < recomputed; ++layer) (again.*what).insert(layer);
              for (const uint32_t chunks : {1, 8}) {
                again.head_chunks = chunks;
                points.push_back(point_of(estimator.of(again)));
              }
            }
        }
  return points;
}

// What an estimator has counted for one plan does not show in another's estimate.
TEST(Estimator, CountsEachPlanAsIfItWereTheOnlyOne) {
  for (const GridCase& grid : grid_cases()) {
    const Machine machine{.devices = 2};
    Estimator estimator(grid.shape, machine);
    for (const Place place : {Place::kDevice, Place::kHost, Place::kNvme, Place::kPeer})
      for (const uint32_t layers : {0u, 2u}) {
        Plan plan{.micro_batch = 3, .optimizer = place};
        for (uint32_t layer = 0; layer < layers; ++layer) plan.recompute.insert(layer);
        plan.peers = {{0, 1}};
        for (const Place of : {Place::kDevice, place}) {
          plan.parameters = plan.gradients = of;
          const Estimate alone = estimate(grid.shape, plan, machine), beside = estimator.of(plan);
          EXPECT_EQ(beside.to_text(), alone.to_text()) << grid.name << ": " << to_string(plan);
          EXPECT_EQ(beside.step_us, alone.step_us) << grid.name << ": " << to_string(plan);
        }
      }
  }
}

TEST(Planner, ComesWithinATenthOfAnExhaustiveSearch) {
  for (const GridCase& grid : grid_cases()) {
    Machine machine{.devices = grid.devices};
    const std::vector<Point> all = exhaustive(grid, machine);
    const uint64_t plain =
        estimate(grid.shape, {.micro_batch = grid.shape.batch}, machine).device_peak_bytes[0];
    for (int percent = 110; percent >= 5; percent -= int(3 * kSample)) {
      machine.device_bytes = kPlannerPages + plain * uint64_t(percent) / 100;
      double best = 0;
      for (const Point& point : all)
        if (with_margin(point.needs) <= machine.device_bytes && (best == 0 || point.seconds < best))
          best = point.seconds;
      const Planned planned = find_plan(grid.shape, machine, Guarantee::kNumericallyEqual, {});
      ASSERT_EQ(planned.best.has_value(), best > 0) << grid.name << " at " << percent << "%";
      if (!planned.best) continue;
      EXPECT_LE(planned.best->time.seconds(), 1.1 * best) << grid.name << " at " << percent << "%";
      EXPECT_TRUE(fits(estimate(grid.shape, planned.best->plan, machine), machine.device_bytes)) << grid.name;
    }
  }
}

TEST(Planner, MoreMemoryNeverGivesASlowerPlan) {
  for (const GridCase& grid : grid_cases()) {
    Machine machine{.devices = grid.devices};
    const uint64_t plain =
        estimate(grid.shape, {.micro_batch = grid.shape.batch}, machine).device_peak_bytes[0];
    double slower = 0;  // 0: nothing has fitted yet
    for (uint64_t percent = 1; percent <= 120; percent += uint64_t{4} * kSample) {
      machine.device_bytes = kPlannerPages + plain * percent / 100;
      const Planned planned =
          find_plan(grid.shape, machine, Guarantee::kNumericallyEqual, {.evaluation_batch = 64});
      ASSERT_TRUE(planned.best || slower == 0)
          << grid.name << ": " << percent << "% fit less than a percent fewer";
      if (!planned.best) continue;
      const double seconds = planned.best->time.seconds();
      ASSERT_TRUE(slower == 0 || seconds <= slower) << grid.name << " at " << percent << "%: " << seconds;
      slower = seconds;
    }
    EXPECT_GT(slower, 0) << grid.name;
  }
}

TEST(Planner, ADeepModelTakesFewEstimates) {
  Architecture model = Architecture::usual(Family::kLlama, 32, 4096, 32, 2048);
  Machine machine{.devices = 2};
  for (const uint64_t gib : {16, 40, 80, 200}) {
    if (kSanitized && gib != 40) continue;
    machine.device_bytes = gib << 30;
    const Planned planned =
        find_plan({model, 64}, machine, Guarantee::kNumericallyEqual, {.evaluation_batch = 8});
    EXPECT_LT(planned.estimates, 4000u) << gib << " GiB";
  }
}

TEST(Planner, WhatHasRoomIsLeftAlone) {
  const Shape shape{small_gpt2(6, 128, 4, 64), 12};
  const Planned planned = find_plan(shape, {.devices = 2, .device_bytes = uint64_t{1} << 40},
                                    Guarantee::kNumericallyEqual, {.evaluation_batch = 5});
  ASSERT_TRUE(planned.best);
  const Candidate best = planned.best.value_or(Candidate{});
  EXPECT_EQ(best.plan, (Plan{.micro_batch = 12, .evaluation_batch = 5}));
}

TEST(Planner, ABitExactFloorKeepsBothBatches) {
  const Shape shape{small_gpt2(6, 128, 4, 64), 12};
  const Plan from{.micro_batch = 6, .evaluation_batch = 6};
  Machine machine{};
  machine.device_bytes = with_margin(estimate(shape, from, machine).device_peak_bytes[0]) - 1;
  const Planned planned = find_plan(shape, machine, Guarantee::kBitExact, from);
  ASSERT_TRUE(planned.best);
  const Candidate best = planned.best.value_or(Candidate{});
  EXPECT_EQ(best.plan.micro_batch, 6u);
  EXPECT_EQ(best.plan.evaluation_batch, 6u);
  EXPECT_NE(best.plan, from) << "it lacks a byte of the margin";
}

TEST(Planner, AnEvaluationThatIsTooLargeIsSplitAndTheStepIsNot) {
  const Shape shape{small_gpt2(6, 128, 4, 64), 2};
  Machine machine{};
  machine.device_bytes = with_margin(2 * estimate(shape, {.micro_batch = 2}, machine).device_peak_bytes[0]);
  const Planned planned = find_plan(shape, machine, Guarantee::kNumericallyEqual, {.evaluation_batch = 4096});
  ASSERT_TRUE(planned.best);
  const Candidate best = planned.best.value_or(Candidate{});
  EXPECT_EQ(best.plan.micro_batch, 2u);
  EXPECT_TRUE(best.plan.recompute.empty());
  EXPECT_GT(best.plan.evaluation_batch, 1u);
  EXPECT_LT(best.plan.evaluation_batch, 4096u);
}

TEST(Planner, WhatDoesNotFitSaysHowMuchIsLacking) {
  const Shape shape{small_gpt2(6, 128, 4, 64), 12};
  Machine machine{.device_bytes = 1 << 20};
  const Planned planned = find_plan(shape, machine, Guarantee::kNumericallyEqual, {});
  EXPECT_FALSE(planned.best);
  ASSERT_FALSE(planned.alternatives.empty());
  uint64_t before = 0;
  for (const Candidate& candidate : planned.alternatives) {
    EXPECT_FALSE(candidate.fits());
    EXPECT_EQ(candidate.lacking_bytes, candidate.most_device_bytes() - machine.device_bytes);
    EXPECT_GE(candidate.lacking_bytes, before) << "the nearest comes first";
    before = candidate.lacking_bytes;
  }
}

TEST(Planner, TheTableHasEachCombinationOfTechniquesOnceAndTheBestFirst) {
  const Shape shape{small_gpt2(8, 128, 4, 64), 16};
  Machine machine{.devices = 2};
  machine.device_bytes = with_margin(estimate(shape, {.micro_batch = 16}, machine).device_peak_bytes[0] / 2);
  const Planned planned = find_plan(shape, machine, Guarantee::kNumericallyEqual, {.evaluation_batch = 4});
  ASSERT_TRUE(planned.best);
  const Candidate best = planned.best.value_or(Candidate{});
  EXPECT_EQ(planned.alternatives[0].plan, best.plan);
  std::set<std::string> seen;
  for (const Candidate& candidate : planned.alternatives) {
    EXPECT_TRUE(!candidate.fits() || candidate.time.seconds() >= best.time.seconds());
    Plan techniques = candidate.plan;
    techniques.micro_batch = techniques.evaluation_batch = 1;
    techniques.placement.clear();
    EXPECT_TRUE(
        seen.insert(to_string(techniques) + (candidate.plan.placement.empty() ? " one" : " two")).second)
        << to_string(candidate.plan);
  }
  EXPECT_GE(seen.size(), 40u)
      << "seven ways to recompute, or not to, two places, one device and two, a head whole or not";
}

TEST(Planner, MomentsDoNotGoToAHostThatHasNoRoomForThem) {
  const Shape shape{small_gpt2(6, 128, 4, 64), 1};
  Machine machine{.host_bytes = 1};
  machine.device_bytes =
      with_margin(estimate(shape, {.optimizer = Place::kHost}, machine).device_peak_bytes[0]);
  EXPECT_FALSE(find_plan(shape, machine, Guarantee::kNumericallyEqual, {}).best);
  machine.host_bytes = uint64_t{1} << 40;
  EXPECT_TRUE(find_plan(shape, machine, Guarantee::kNumericallyEqual, {}).best);
}

TEST(Planner, MomentsGoToADiskWhereTheHostHasNoRoomForThem) {
  const Shape shape{small_gpt2(6, 512, 4, 64), 1};
  Machine machine;
  machine.device_bytes =
      with_margin(estimate(shape, {.optimizer = Place::kHost}, machine).device_peak_bytes[0]);
  machine.host_bytes = estimate(shape, {.optimizer = Place::kNvme}, machine).host_bytes;
  const Planned planned = find_plan(shape, machine, Guarantee::kBitExact, {});
  ASSERT_TRUE(planned.best);
  EXPECT_EQ(planned.best->plan.optimizer, Place::kNvme);
  machine.host_bytes = 0;
  EXPECT_NE(find_plan(shape, machine, Guarantee::kBitExact, {}).best->plan.optimizer, Place::kNvme);
}

TEST(Planner, ActivationsGoToADiskWhereTheHostHasNoRoomForThem) {
  Shape shape{small_gpt2(12, 512, 4, 1024), 1};
  shape.offload_least_bytes = 1;
  Plan recomputed{.micro_batch = 1};
  for (uint32_t layer = 0; layer < 12; ++layer) recomputed.recompute.insert(layer);
  recomputed.offload = recomputed.recompute;
  Machine machine{.nvme_least_bytes = 0};
  // Not all inputs of recomputed layers stay, and nothing else goes away.
  machine.device_bytes = with_margin(estimate(shape, recomputed, machine).device_peak_bytes[0]);
  const auto at_most = [&](uint64_t host_bytes) {
    machine.host_bytes = host_bytes;
    return find_plan(shape, machine, Guarantee::kBitExact, {}).best;
  };
  recomputed.offload_to = Place::kNvme;
  const Estimate disk = estimate(shape, recomputed, machine);
  recomputed.offload_to = Place::kHost;
  const uint64_t host = estimate(shape, recomputed, machine).host_bytes;
  ASSERT_GT(host, disk.host_bytes);
  EXPECT_EQ(at_most(host)->plan.offload_to, Place::kHost);
  const auto best = at_most(disk.host_bytes);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->plan.offload_to, Place::kNvme) << to_string(best->plan);
  EXPECT_FALSE(best->plan.offload.empty());
}

TEST(Planner, LayersGoToADiskWhereTheHostHasNoRoomForThem) {
  const Shape shape{small_gpt2(16, 512, 4, 64), 1};
  Plan layers{.optimizer = Place::kNvme, .parameters = Place::kHost, .gradients = Place::kHost};
  Machine machine;
  machine.device_bytes = with_margin(estimate(shape, layers, machine).device_peak_bytes[0]);
  for (const auto place : {&Plan::gradients, &Plan::parameters}) {
    layers.*place = Place::kNvme;
    machine.host_bytes = estimate(shape, layers, machine).host_bytes;
    const Planned planned = find_plan(shape, machine, Guarantee::kBitExact, {});
    ASSERT_TRUE(planned.best);
    const Plan& best = planned.best->plan;
    EXPECT_EQ(best.optimizer, Place::kNvme);
    EXPECT_EQ(best.gradients, Place::kNvme);
    EXPECT_EQ(best.parameters, layers.parameters);
  }
}

TEST(StepTime, NamesItsLargestPart) {
  EXPECT_STREQ((StepTime{.compute = 2, .memory = 1}.limit()), "compute");
  EXPECT_STREQ((StepTime{.launches = 3, .optimizer = 1}.limit()), "launches");
  EXPECT_STREQ((StepTime{.compute = 1, .host_link = 2}.limit()), "host link");
}

// Kaplan et al. (2020), section 2.1: 6 operations a parameter and token, and the attention's 6 × layers ×
// context × width, of which a causal one computes half; 8 and a third more where a layer is recomputed.
TEST(StepTime, CountsTheProductsOfAllParametersAndOfTheAttention) {
  const Architecture model = small_gpt2(12, 768, 12, 1024);
  const Shape shape{model, 8};
  // Bytes and launches cost nothing: all that is left is arithmetic.
  const Machine machine{.flops = 1e12, .memory_bytes_per_second = 1e30, .launch_seconds = 1e-30};
  const double tokens = 8.0 * 1024;
  const double layer = 12.0 * 768 * 768, attention = 2.0 * 1024 * 768, head = 256.0 * 768;
  const double forward = tokens * (12 * (2 * layer + attention) + 2 * head);
  const StepTime plain = estimate(shape, {.micro_batch = 8}, machine).time;
  EXPECT_NEAR(plain.compute, 3 * forward / 1e12, 0.001 * plain.compute);
  Plan again{.micro_batch = 8};
  for (uint32_t each = 0; each < 12; ++each) again.recompute.insert(each);
  const double all = 3 * forward + 12 * tokens * (2 * layer + attention);
  EXPECT_NEAR(estimate(shape, again, machine).time.compute, all / 1e12, 0.001 * all / 1e12);
}

TEST(StepTime, AnEmbeddingIsNoProduct) {
  Architecture model = small_model(Family::kLlama, 2, 64, 2, 32);
  const Machine machine{.memory_bytes_per_second = 1e30, .launch_seconds = 1e-30};
  const auto compute = [&](uint32_t vocabulary) {
    model.vocabulary = vocabulary;
    return estimate({model, 4}, {.micro_batch = 4}, machine).time.compute;
  };
  const double per_word = 6.0 * 64 * 4 * 32;  // of the untied head alone
  EXPECT_NEAR(compute(2000) - compute(1000), 1000 * per_word / machine.flops, 1e-12);
}

TEST(StepTime, EveryMicroBatchIsCountedAlsoTheLastSmallOne) {
  const Shape shape{small_gpt2(2, 64, 2, 32), 10};
  const Machine machine{.memory_bytes_per_second = 1e30, .launch_seconds = 1e-30};
  const double whole = estimate(shape, {.micro_batch = 10}, machine).time.compute;
  for (const uint32_t micro_batch : {1u, 3u, 4u, 7u})
    EXPECT_NEAR(estimate(shape, {.micro_batch = micro_batch}, machine).time.compute, whole, 1e-9 * whole);
}

TEST(StepTime, MomentsOnTheHostCrossTheLinkBesideTheUpdate) {
  const Shape shape{small_gpt2(2, 64, 2, 32), 1};
  Machine machine{.launch_seconds = 1e-30};
  const Estimate needed = estimate(shape, {.optimizer = Place::kHost}, machine);
  const double link = double(needed.host_bytes) / machine.host_bytes_per_second;
  EXPECT_GT(needed.time.optimizer, 0);
  EXPECT_NEAR(needed.time.host_link, link - needed.time.optimizer, 1e-12);
  EXPECT_EQ(estimate(shape, {}, machine).time.host_link, 0);
  machine.host_bytes_per_second = 1e15;
  EXPECT_EQ(estimate(shape, {.optimizer = Place::kHost}, machine).time.host_link, 0) << "it is hidden";
}

TEST(StepTime, MomentsOnNvmePassTheDiskBesideTheLink) {
  const Shape shape{small_gpt2(2, 512, 2, 32), 1};
  const Machine machine{.launch_seconds = 1e-30};
  const Estimate host = estimate(shape, {.optimizer = Place::kHost}, machine);
  const Estimate nvme = estimate(shape, {.optimizer = Place::kNvme}, machine);
  EXPECT_EQ(nvme.device_peak_bytes, host.device_peak_bytes);
  EXPECT_GT(nvme.nvme_bytes, host.host_bytes * 95 / 100) << "small parameters stay on the host";
  EXPECT_LT(nvme.nvme_bytes, host.host_bytes);
  const double disk = double(nvme.nvme_bytes) *
                      (1 / machine.nvme_read_bytes_per_second + 1 / machine.nvme_write_bytes_per_second);
  const double link = double(host.host_bytes) / machine.host_bytes_per_second;
  EXPECT_NEAR(nvme.time.nvme, disk - link, 1e-9);
  EXPECT_EQ(nvme.time.host_link, host.time.host_link);
  EXPECT_STREQ(nvme.time.limit(), "NVMe");
}

TEST(Planner, TheLargestMicroBatchThatFitsIsTaken) {
  const Shape shape{.model = small_gpt2(6, 384, 6, 256), .batch = 12};
  Plan from{.micro_batch = 12, .evaluation_batch = 12};
  from.recompute = {0, 1};
  Machine machine;
  uint32_t last = 0;
  for (uint64_t mebibytes = 100; mebibytes <= 1200; mebibytes += 50) {
    machine.device_bytes = mebibytes << 20;
    const Planned found = find_micro_batch(shape, machine, from);
    ASSERT_EQ(found.alternatives.size(), 1u);
    const Candidate& chosen = found.alternatives.front();
    EXPECT_EQ(chosen.fits(), found.best.has_value()) << mebibytes;
    EXPECT_GE(chosen.plan.micro_batch, last) << mebibytes;
    last = chosen.plan.micro_batch;
    Plan same = chosen.plan;
    same.micro_batch = from.micro_batch, same.evaluation_batch = from.evaluation_batch;
    EXPECT_EQ(same, from) << "all else stays";
    if (!found.best || last == shape.batch) continue;
    Plan larger = chosen.plan;
    larger.micro_batch = (shape.batch + shape.batch / last - 2) / (shape.batch / last - 1);
    const Planned none =
        find_micro_batch({.model = shape.model, .batch = larger.micro_batch}, machine, larger);
    EXPECT_LT(none.alternatives.front().plan.micro_batch, larger.micro_batch) << mebibytes;
  }
  EXPECT_EQ(last, shape.batch);
}

}  // namespace
}  // namespace spillway::trainer
