// Matrices of streamed layers in tiles: the bits of a training that has them whole, and the card's memory
// that they leave.
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/app/trainer.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {
namespace {

Plan in_tiles(Plan plan, uint32_t tiles) {
  plan.parameters = plan.gradients = plan.optimizer = Place::kHost;
  plan.tiles = tiles;
  return plan;
}

// Tiles have 64 to 192 lines.
class Tiling : public TiledTraining {};
INSTANTIATE_TEST_SUITE_P(
    Of, Tiling,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kGpt2, {Precision::kFloat32, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kLlama, {Precision::kFloat32, OptimizerKind::kSgd}},
                    Streams{Family::kLlama, {Precision::kBf16, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdamW}}),
    case_of_streams);

TEST_P(Tiling, GivesTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  Plan recomputed = in_tiles(config_.plan, 4), parts = in_tiles(config_.plan, 2);
  recomputed.recompute = all_, recomputed.recompute_segment = 2, recomputed.optimizer = Place::kNvme;
  parts.recompute_attention = all_, parts.recompute_mlp = {1}, parts.offload = {0};
  config_.train.offload_least_bytes = 1;
  const bool llama = GetParam().family == Family::kLlama;
  for (const Plan& plan : {in_tiles(config_.plan, 2), llama ? parts : recomputed})
    EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// The accumulators' slots are filled by the walks before and after then, and not by the pass.
TEST_P(Tiling, OneMicroBatchAStepGivesTheBitsOfAPlainRun) {
  config_.plan.micro_batch = config_.train.batch;
  const std::vector<Plan> plain(4, config_.plan), tiles(4, in_tiles(config_.plan, 2));
  EXPECT_EQ(reference(tiles), reference(plain));
}

// From the card to the host, into tiles, to a second card, into other tiles and back, in the middle of a
// training.
TEST_P(Tiling, MovesIntoTilesToAnotherCardAndBackKeepTheBits) {
  devices_.emplace_back(at::kCUDA, 1);
  const Plan whole = in_tiles(config_.plan, 1), two = in_tiles(config_.plan, 2);
  Plan there = two, four = in_tiles(config_.plan, 4);
  there.placement = four.placement = {{1, 1}};
  const std::vector<Plan> plain(8, config_.plan);
  EXPECT_EQ(reference({config_.plan, two, there, four, four, two, whole, config_.plan}), reference(plain));
}

TEST_P(Tiling, TheCommitMakesNoRequest) {
  config_.plan = in_tiles(config_.plan, 2);
  expect_quiet_commits();
}

class TilingFailures : public Simulated {
 protected:
  TilingFailures() {
    config_.model = small_gpt2(2, 128, 2, 8, 0.1);
    config_.plan.recompute = {0, 1};
    config_.train.batch = 2;
    config_.plan.micro_batch = 1;
    corpus_ = test_corpus(scratch_, config_.model);
    every_ = 29;
  }
};

TEST_F(TilingFailures, EveryRequestOfATiledStepFailingOnceIsServedToTheBit) {
  config_.plan = in_tiles(config_.plan, 2);
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(TilingFailures, EveryRequestFailingUntilLayersAreInTilesGivesTheUndisturbedBits) {
  config_.plan = in_tiles(config_.plan, 1);
  config_.plan.offload = {0, 1};
  expect_served(sweep(Injection::kUntilAMove), "tile_layers");
}

TEST_F(TilingFailures, EveryRequestOfATiledStepFailingUntilAMoveGivesTheBitsOfItsPlans) {
  config_.plan = in_tiles(config_.plan, 2);
  config_.plan.recompute = {};
  expect_served(sweep(Injection::kUntilAMove), "recompute");
}

TEST_F(TilingFailures, EveryDriverCallFailingOnceIsServedToTheBit) {
  config_.plan = in_tiles(config_.plan, 2);
  every_ = 1;
  EXPECT_EQ(sweep(Injection::kDriverOnce).gave_up, 0u);
}

// One layer, which is nearly all of the model.
class TilingMemory : public Simulated {
 protected:
  TilingMemory() {
    config_.model = small_gpt2(1, 1024, 2, 16);
    config_.train = {.steps = 2, .batch = 2, .warmup = 1};
    config_.data.corpus = scratch_.corpus();
    config_.run.out = scratch_.file("run");
  }
  Results trained(uint32_t tiles, uint64_t limit) {
    Config config = config_;
    config.plan = in_tiles({.micro_batch = 1, .evaluation_batch = 1}, tiles);
    config.run.limit_bytes = limit;
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    Results results = train(config, {.resume = "", .stop = nullptr, .quiet = true});
    set_limits(0);
    EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
    return results;
  }
};

TEST_F(TilingMemory, TilesLeaveTheMemoryThatTheEstimateSays) {
  std::vector<double> measured, estimated;
  std::vector<uint64_t> weights;
  for (const uint32_t tiles : {1u, 4u, 32u}) {
    const Results results = trained(tiles, 0);
    measured.push_back(double(results.memory.at(0).peak_live));
    Config config = config_;
    estimated.push_back(double(estimate(config.shape(), results.plan, {}).device_peak_bytes[0]));
    weights.push_back(results.weights_hash);
  }
  for (size_t i = 0; i < measured.size(); ++i)
    EXPECT_NEAR(measured[i], estimated[i], 0.03 * measured[i]) << i;
  EXPECT_LT(measured[1], measured[0] / 2);
  EXPECT_LT(measured[2], measured[1] / 2);
  EXPECT_EQ(weights, std::vector<uint64_t>(3, weights[0]));
}

TEST_F(TilingMemory, AModelWhoseOneLayerIsTwiceTheCardTrains) {
  const uint64_t weights = 4 * layer_parameter_count(config_.model, 0);
  EXPECT_TRUE(trained(32, weights / 2).records.empty());
}

}  // namespace
}  // namespace spillway::trainer
