// Which plans of ranks go together, and what the estimate of a rank's share says.
#include "trainer/plan/ranks/same_sequence.h"

#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/estimate.h"
#include "trainer/ranks/agreement/word.h"

namespace spillway::trainer {
namespace {

TEST(Sequence, IsThatOfAllPlansWhereRanksShareStatesAtMost) {
  const Plan one{.micro_batch = 2}, other{.micro_batch = 3, .recompute = {1}};
  for (const uint32_t zero : {0u, 1u}) EXPECT_TRUE(same_sequence(one, other, {zero}));
  for (const uint32_t zero : {2u, 3u}) EXPECT_FALSE(same_sequence(one, other, {zero}));
}

TEST(Sequence, OfSharedGradientsFollowsFromTheMicroBatches) {
  const Plan one{.micro_batch = 2};
  EXPECT_TRUE(same_sequence(one, {.micro_batch = 2, .evaluation_batch = 4, .recompute = {0}}, {2}));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 1}, {2}));
}

TEST(Sequence, OfSharedWeightsFollowsFromTheirUsesToo) {
  const Plan one{.micro_batch = 2, .recompute = {0}};
  EXPECT_TRUE(same_sequence(one,
                            {.micro_batch = 2,
                             .recompute = {0},
                             .optimizer = Place::kHost,
                             .recompute_mlp = {0},
                             .head_chunks = 4,
                             .parameters = Place::kNvme,
                             .gradients = Place::kHost,
                             .offload = {0}},
                            {3}));
  Plan other = one;
  other.evaluation_batch = 2;
  EXPECT_FALSE(same_sequence(one, other, {3}));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0, 1}}, {3}));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0}, .recompute_mlp = {1}}, {3}));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0}, .recompute_attention = {1}}, {3}));
}

// Of ranks that have agreed each keeps the rest of its plan.
TEST(Sequence, IsThatOfTheCommonPlan) {
  const Plan one{.micro_batch = 4, .recompute = {0}, .optimizer = Place::kHost};
  const Plan other{.micro_batch = 2, .evaluation_batch = 3, .recompute_mlp = {1}, .parameters = Place::kNvme};
  const Plan joined = join(one, other);
  for (const uint32_t zero : {2u, 3u}) {
    const Plan here = common_plan(one, joined, {zero}), there = common_plan(other, joined, {zero});
    EXPECT_TRUE(same_sequence(here, there, {zero}));
    EXPECT_EQ(here.optimizer, Place::kHost);
    EXPECT_EQ(there.parameters, Place::kNvme);
  }
}

// 1/N of what belongs to layers, at each stage of one kind more; and slots for whole units.
TEST(Sequence, TheEstimateIsOfARanksShare) {
  Shape shape{.model = small_gpt2(12, 256, 4, 64), .batch = 4};
  const auto items = [&](uint32_t ranks, uint32_t zero) {
    shape.ranks = ranks, shape.zero = zero;
    std::map<std::string, double> bytes;
    for (const EstimateItem& item : estimate(shape, {}, {}).items) bytes[item.name] = double(item.bytes);
    return bytes;
  };
  auto whole = items(4, 1), sums = items(4, 2), all = items(4, 3);
  const double outer = 4 * 256 * (double(shape.model.vocabulary) + 64 + 2),
               in_layers = whole["parameters"] - outer;
  EXPECT_NEAR(sums["gradients"] / (outer + whole["gradients"] / 4), 1, 1e-3);
  EXPECT_EQ(sums["parameters"], whole["parameters"]);
  EXPECT_EQ(all["gradients"], sums["gradients"]);
  EXPECT_NEAR(all["parameters"] / (outer + in_layers / 4), 1, 1e-3);
  const double mlp = 4 * (8 * 256 * 256 + 5 * 256 + 2 * 256);
  EXPECT_NEAR(all["slots for whole parameters"] / (2 * mlp), 1, 1e-2);
  EXPECT_NEAR(sums["slots for whole gradients"] / (2 * mlp), 1, 1e-2);
  EXPECT_EQ(sums["slots for whole parameters"], 0);
  EXPECT_EQ(items(1, 3), items(1, 0));
}

}  // namespace
}  // namespace spillway::trainer
