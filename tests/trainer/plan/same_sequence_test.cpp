// Which plans of ranks go together, and what the estimate of a rank's share says.
#include "trainer/plan/ranks/same_sequence.h"

#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/estimate.h"

namespace spillway::trainer {
namespace {

TEST(Sequence, IsThatOfAllPlansWhereRanksShareStatesAtMost) {
  const Plan one{.micro_batch = 2}, other{.micro_batch = 3, .recompute = {1}};
  for (const uint32_t zero : {0u, 1u}) EXPECT_TRUE(same_sequence(one, other, zero));
  for (const uint32_t zero : {2u, 3u}) EXPECT_FALSE(same_sequence(one, other, zero));
}

TEST(Sequence, OfSharedGradientsFollowsFromTheMicroBatches) {
  const Plan one{.micro_batch = 2};
  EXPECT_TRUE(same_sequence(one, {.micro_batch = 2, .evaluation_batch = 4, .recompute = {0}}, 2));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 1}, 2));
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
                            3));
  Plan other = one;
  other.evaluation_batch = 2;
  EXPECT_FALSE(same_sequence(one, other, 3));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0, 1}}, 3));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0}, .recompute_mlp = {1}}, 3));
  EXPECT_FALSE(same_sequence(one, {.micro_batch = 2, .recompute = {0}, .recompute_attention = {1}}, 3));
}

TEST(Sequence, MovesKeepIt) {
  Shape shape{.model = small_gpt2(4, 256, 4, 64), .batch = 8, .ranks = 2};
  const Plan plan{.micro_batch = 4};
  for (const uint32_t zero : {0u, 1u, 2u, 3u}) {
    shape.zero = zero;
    bool splits = false, recomputes = false;
    for (const Move& move : neighbours(plan, shape, {}, Guarantee::kNumericallyEqual)) {
      EXPECT_TRUE(same_sequence(plan, move.to, zero)) << move.name;
      splits = splits || move.kind == MoveKind::kSplitMicroBatch;
      recomputes = recomputes || move.kind == MoveKind::kRecompute;
    }
    EXPECT_EQ(splits, zero < 2) << zero;
    EXPECT_EQ(recomputes, zero < 3) << zero;
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
