// What the stages of a pipeline over ranks have, and what the estimate of one says.
#include "trainer/plan/stages/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/partition.h"

namespace spillway::trainer {
namespace {

using testing::ElementsAre;

TEST(Stage, OfAModelWithAHeadThatComputesLittleHasAsManyLayersAsTheOthers) {
  const Architecture model = small_gpt2(8, 64, 4, 32);
  EXPECT_THAT(balanced_layers(model, 1), ElementsAre(8));
  EXPECT_THAT(balanced_layers(model, 2), ElementsAre(4, 4));
  EXPECT_THAT(balanced_layers(model, 8), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(Stage, WithTheHeadHasFewerLayersWhereItComputesMuch) {
  Architecture model = small_gpt2(12, 64, 4, 32);
  model.vocabulary = 4096;  // the head is 5.3 layers
  EXPECT_THAT(balanced_layers(model, 2), ElementsAre(9, 3));
  model.vocabulary = 1 << 20;
  EXPECT_THAT(balanced_layers(model, 3), ElementsAre(6, 5, 1)) << "it has a layer in any case";
}

TEST(Stage, StagesHaveAllOfAModelOnceButForTiedEmbeddings) {
  for (const bool tied : {false, true}) {
    Architecture model = small_gpt2(5, 64, 4, 32);
    model.tied_head = tied;
    const std::vector<Parameter> whole = parameter_table(model);
    std::vector<int> times(whole.size());
    for (uint32_t number = 0; number < 3; ++number) {
      const std::vector<Parameter> own = parameter_table(model, stage_of({2, 2, 1}, number));
      ASSERT_EQ(own.size(), whole.size());
      for (size_t i = 0; i < own.size(); ++i) {
        EXPECT_EQ(own[i].name, whole[i].name);
        if (own[i].sizes == whole[i].sizes) ++times[i];
        EXPECT_EQ(own[i].is_twin, tied && i == 0 && number != 1);
      }
    }
    for (size_t i = 0; i < times.size(); ++i) EXPECT_EQ(times[i], tied && i == 0 ? 2 : 1) << whole[i].name;
  }
}

// Or a pair of ranks would exchange other sections.
TEST(Stage, TiedEmbeddingsAreCutAlikeAtBothEnds) {
  const Architecture model = small_gpt2(2, 64, 4, 32);
  const Partition first(Numerics{}, parameter_table(model, stage_of({1, 1}, 0)), 3),
      last(Numerics{}, parameter_table(model, stage_of({1, 1}, 1)), 3);
  EXPECT_EQ(first.sections(0), last.sections(0));
  EXPECT_EQ(first.part_number(first.group_of(0)), -1);
  EXPECT_EQ(first.part_number(0), 3);
}

TEST(Stage, AnEstimateIsOfItsLayersAndOfWhatIsUnderWay) {
  Shape shape{.model = small_gpt2(4, 256, 4, 64), .batch = 8};
  const Plan plan{.micro_batch = 1, .evaluation_batch = 1};
  const uint64_t whole = estimate(shape, plan, {}).device_peak_bytes[0];
  std::vector<uint64_t> peaks;
  for (uint32_t number = 0; number < 2; ++number) {
    shape.stage = stage_of({2, 2}, number);
    peaks.push_back(estimate(shape, plan, {}).device_peak_bytes[0]);
    EXPECT_LT(peaks.back(), 0.8 * double(whole));
  }
  const auto of = [](const Estimate& all, const std::string& name) {
    for (const EstimateItem& item : all.items)
      if (item.name == name) return item.bytes;
    return uint64_t{0};
  };
  shape.stage = stage_of({2, 2}, 0);
  const Estimate two_under_way = estimate(shape, plan, {});
  shape.batch = 1;
  EXPECT_GT(of(two_under_way, "other micro-batches under way"), 0u);
  EXPECT_EQ(of(estimate(shape, plan, {}), "other micro-batches under way"), 0u);
  EXPECT_GT(two_under_way.time.seconds(), two_under_way.time.ranks);
  EXPECT_LT(two_under_way.time.seconds(), 1);
  EXPECT_GT(two_under_way.time.ranks, 0) << "the first micro-batch comes to the last stage, and back";
}

// Halves of the stage's layers, and nothing that would take layers off its device.
TEST(Stage, MovesAreOfItsLayers) {
  Shape shape{.model = small_gpt2(8, 64, 4, 32), .batch = 8};
  shape.stage = stage_of({4, 4}, 1);
  const auto moves = neighbours({.micro_batch = 2, .evaluation_batch = 1}, shape, {}, Guarantee::kBitExact);
  bool recomputes = false;
  for (const Move& move : moves) {
    EXPECT_FALSE(move.to.streams()) << move.name;
    if (move.kind != MoveKind::kRecompute) continue;
    recomputes = true;
    EXPECT_THAT(move.to.recompute, ElementsAre(4, 5));
  }
  EXPECT_TRUE(recomputes);
}

}  // namespace
}  // namespace spillway::trainer
