// How ranks share a model's numbers: everything once, evenly, and cut where it may be.
#include "trainer/plan/parameters/partition.h"

#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/estimate.h"

namespace spillway::trainer {
namespace {

constexpr int64_t kSmallBucket = 16 << 10;

const std::vector<Numerics>& all_numerics() {
  static const std::vector<Numerics> all{{},
                                         {Precision::kBf16Mixed, OptimizerKind::kAdamW8bit},
                                         {Precision::kInt8, OptimizerKind::kAdamW},
                                         {Precision::kInt8, OptimizerKind::kAdamW8bit},
                                         {Precision::kBf16, OptimizerKind::kSgd}};
  return all;
}

TEST(Partition, HasEachNumberOnceInItsGroupsRounds) {
  for (const Numerics& numerics : all_numerics())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      const std::vector<Parameter> table = parameter_table(small_gpt2(3, 48, 2, 8));
      const Partition partition(numerics, table, ranks, kSmallBucket);
      std::vector<std::vector<Span>> seen(table.size());
      for (size_t group = 0; group < partition.groups(); ++group)
        for (uint32_t rank = 0; rank < ranks; ++rank)
          for (const Partition::Round& round : partition.rounds(group)) {
            int64_t used = 0;
            for (const auto& [parameter, span] : round.of_rank[rank]) {
              EXPECT_EQ(partition.group_of(parameter), group);
              const Span& section = partition.sections(parameter)[rank];
              EXPECT_GE(span.begin, section.begin);
              EXPECT_LE(span.begin + span.length, section.begin + section.length);
              seen[parameter].push_back(span);
              used += span.length;
            }
            EXPECT_LE(used, round.elements);
          }
      for (size_t i = 0; i < table.size(); ++i) {
        int64_t next = 0;
        for (const auto& [begin, length] : seen[i]) {
          EXPECT_EQ(begin, next) << table[i].name;
          next += length;
        }
        EXPECT_EQ(next, int64_t(table[i].elements())) << table[i].name;
      }
    }
}

TEST(Partition, GroupsFollowTheBackward) {
  const std::vector<Parameter> table = parameter_table(small_model_of(Family::kT5, 0));
  const Partition partition({}, table, 2);
  size_t next = table.size();
  for (size_t group = 0; group + 1 < partition.groups(); ++group) {
    const std::vector<size_t>& parameters = partition.parameters_of(group);
    EXPECT_EQ(parameters.back(), --next) << "what stands last in the table comes first";
    for (const size_t i : parameters) {
      EXPECT_EQ(table[i].layer, partition.layer_of(group));
      EXPECT_EQ(table[i].part, table[next].part);
    }
    next = parameters.front();
  }
  EXPECT_EQ(partition.layer_of(partition.groups() - 1), -1);
}

TEST(Partition, CutsBetweenBlocksAndRows) {
  const std::vector<Parameter> table = parameter_table(small_gpt2(3, 48, 2, 8));
  for (const Numerics& numerics : all_numerics()) {
    const Partition partition(numerics, table, 3, kSmallBucket);
    for (size_t i = 0; i < table.size(); ++i)
      for (const Span& section : partition.sections(i)) {
        if (section.length == 0 || section.begin == 0) continue;
        const bool has_blocks = numerics.optimizer == OptimizerKind::kAdamW8bit,
                   has_rows = numerics.precision == Precision::kInt8 && table[i].sizes.size() == 2;
        EXPECT_EQ(section.begin % (has_blocks ? kQuantizationBlock : 1), 0);
        EXPECT_EQ(section.begin % (has_rows ? table[i].sizes[1] : 1), 0);
      }
  }
}

TEST(Partition, SharesAreEqualUpToABlockOfEachGroup) {
  const std::vector<Parameter> table = parameter_table(small_gpt2(4, 256, 4, 64));
  for (const uint32_t ranks : {2u, 3u, 4u, 8u}) {
    const Partition partition({}, table, ranks);
    const auto equal = double(parameter_count(small_gpt2(4, 256, 4, 64))) / ranks;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_NEAR(double(partition.own_elements(rank)), equal,
                  double(kQuantizationBlock * partition.groups()));
  }
}

TEST(Partition, ATensorSmallerThanTheRanksIsOneRanks) {
  const std::vector<Parameter> table{plain_parameter(-1, {3}), plain_parameter(-1, {1})};
  const Partition partition({}, table, 8);
  int64_t all = 0, owners = 0;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    all += partition.own_elements(rank);
    owners += partition.sections(0)[rank].length > 0 ? 1 : 0;
  }
  EXPECT_EQ(all, 4);
  EXPECT_EQ(owners, 1);
}

TEST(Partition, TheBufferIsOfABucketHoweverLargeATensorIs) {
  const std::vector<Parameter> table{plain_parameter(-1, {50257, 768})};
  for (const uint32_t ranks : {2u, 8u, 64u}) {
    const Partition partition({}, table, ranks);
    EXPECT_LE(partition.buffer_bytes(), uint64_t(kBucketBytes));
    EXPECT_GT(partition.buffer_bytes(), uint64_t(kBucketBytes) / 2);
  }
  // A rank's part keeps its size.
  EXPECT_EQ(Partition({}, table, 256).buffer_bytes(), 4 * Partition({}, table, 64).buffer_bytes());
  EXPECT_EQ(Partition({}, table, 1).buffer_bytes(), 0u);
}

// 4 + 12/N bytes a parameter in ZeRO's formula; gradients in 32 bits make it 6 + 12/N.
TEST(Partition, TheEstimateHasZerosFormula) {
  const Architecture model = small_gpt2(4, 256, 4, 64);
  const auto numbers = double(parameter_count(model));
  const auto bytes_of = [&](uint32_t ranks, uint32_t zero) {
    const Shape shape{.model = model,
                      .batch = 1,
                      .numerics = {.precision = Precision::kBf16Mixed},
                      .ranks = ranks,
                      .zero = zero};
    double bytes = 0;
    for (const EstimateItem& item : estimate(shape, Plan{}, Machine{}).items)
      if (item.name == "parameters" || item.name == "gradients" || item.name == "optimizer state")
        bytes += double(item.bytes);
    return bytes / numbers;
  };
  EXPECT_NEAR(bytes_of(1, 0), 18, 0.01);
  EXPECT_NEAR(bytes_of(4, 0), 18, 0.01);
  for (const uint32_t ranks : {2u, 4u, 8u}) EXPECT_NEAR(bytes_of(ranks, 1), 6 + 12.0 / ranks, 0.02);
}

}  // namespace
}  // namespace spillway::trainer
