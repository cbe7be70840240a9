// Matrices in tiles whose bytes are on a disk, or that are updated right before their next forward, or both:
// the bits of a training that has them whole on the card, on a disk that fails too.
#include "tests/trainer/residency/failing_io.h"
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/app/trainer.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

Plan tiles_at(Plan plan, Place layers, uint32_t tiles) {
  plan.parameters = plan.gradients = layers;
  plan.optimizer = Place::kHost;
  plan.tiles = tiles;
  return plan;
}

Plan just_in_time(Plan plan) {
  plan.just_in_time = true;
  return plan;
}

// Tiles have 64 to 192 lines.
class TilesElsewhere : public TiledTraining {};
INSTANTIATE_TEST_SUITE_P(
    Of, TilesElsewhere,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kBf16, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdamW}}),
    case_of_streams);

TEST_P(TilesElsewhere, GiveTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  std::vector<Plan> plans{tiles_at(config_.plan, Place::kNvme, 2),
                          just_in_time(tiles_at(config_.plan, Place::kHost, 2)),
                          just_in_time(tiles_at(config_.plan, Place::kNvme, 4))};
  plans[2].optimizer = Place::kNvme, plans[2].recompute = {0, 1}, plans[2].recompute_segment = 2;
  if (GetParam().family == Family::kGpt2) {
    plans.push_back(plans[0]);
    plans.back().gradients = Place::kHost, plans.back().recompute_mlp = {1};
  }
  for (const Plan& plan : plans) EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// Into tiles and other tiles, between the host and the disk, to a second card and back, in the middle of a
// training and where each part waits for its update.
TEST_P(TilesElsewhere, MovesKeepTheBits) {
  devices_.emplace_back(at::kCUDA, 1);
  const auto at = [&](Place place, uint32_t tiles) {
    return just_in_time(tiles_at(config_.plan, place, tiles));
  };
  Plan there = at(Place::kNvme, 2), mixed = at(Place::kNvme, 4);
  there.placement = mixed.placement = {{1, 1}};
  mixed.gradients = Place::kHost;
  const std::vector<Plan> plain(9, config_.plan);
  EXPECT_EQ(reference({at(Place::kNvme, 1), at(Place::kNvme, 2), at(Place::kHost, 2), at(Place::kNvme, 2),
                       there, mixed, at(Place::kNvme, 1), at(Place::kHost, 4), config_.plan}),
            reference(plain));
}

TEST_P(TilesElsewhere, AnUpdateBeforeTheNextForwardMakesNoRequest) {
  config_.plan = just_in_time(tiles_at(config_.plan, Place::kHost, 2));
  expect_quiet_commit();
}

class TilesElsewhereFailures : public Simulated {
 protected:
  static constexpr uint64_t kUpdates = 2;

  TilesElsewhereFailures() {
    config_.model = small_gpt2(2, 128, 2, 8, 0.1);
    config_.plan.recompute = {0, 1};
    config_.train.batch = 2;
    config_.plan.micro_batch = 1;
    corpus_ = test_corpus(scratch_, config_.model);
  }

  Outcome under(const IoFault& fault) {
    FailingIo::arm({});
    Fixture fixture(config_, corpus_, devices_);
    FailingIo::arm(fault);
    Outcome outcome;
    for (uint64_t step = 0; step < kUpdates; ++step) {
      EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone);
      outcome.losses.push_back(fixture.program.loss());
      outcome.norms.push_back(fixture.program.gradient_norm());
    }
    outcome.weights = fixture.program.parameters().hash();
    return outcome;
  }

  const FailingIo failing_;
};

TEST_F(TilesElsewhereFailures, ADiskThatFailsChangesNoBit) {
  config_.plan = tiles_at(config_.plan, Place::kHost, 1);
  const Outcome plain = under({});
  for (const bool later : {false, true}) {
    config_.plan = tiles_at(config_.plan, Place::kNvme, 2);
    config_.plan.just_in_time = later;
    for (const uint64_t n : {1, 7, 19, 40}) {
      if (kSanitized && n > 7) continue;
      EXPECT_EQ(under({.writes = true, .at = n, .persistent = true, .error = ENOSPC}), plain) << n;
      EXPECT_GT(FailingIo::fired, 0u) << n;
      EXPECT_EQ(under({.at = n, .error = EIO}), plain) << n;
      EXPECT_EQ(under({.at = n, .kind = IoFault::Kind::kFlippedBit}), plain) << n;
    }
  }
  EXPECT_EQ(violations(), "");
}

TEST_F(TilesElsewhereFailures, EveryRequestFailingOnceIsServedToTheBit) {
  config_.plan = just_in_time(tiles_at(config_.plan, Place::kNvme, 2));
  every_ = 61;
  expect_served(sweep(Injection::kOnce), "");
}

// In the second step, where parts are updated in tiles.
TEST_F(TilesElsewhereFailures, RequestsOfAnUpdateBeforeTheNextForwardFailingGiveTheUndisturbedBits) {
  config_.plan = tiles_at(config_.plan, Place::kHost, 2);
  config_.recovery.floor = Guarantee::kBitExact;
  const Outcome undisturbed = reference({config_.plan, config_.plan});
  config_.plan.just_in_time = true;
  uint64_t first = core_.table()->requests();
  run(Injection::kNone, 0, 1);
  first = core_.table()->requests() - first;
  for (uint64_t n = first + 1; n < first + first / 4; n += 1 + first / 40) {
    const Ran ran = run(Injection::kOnce, n, 2);
    EXPECT_GT(ran.fired, 0u);
    EXPECT_EQ(ran.outcome, undisturbed) << n << ": " << ran.actions;
  }
  EXPECT_EQ(violations(), "");
}

// A matrix whose tiles are two, as the slots are, and whose update is one run: a slot keeps a tile then.
TEST_F(TilesElsewhereFailures, ATileIsNotUsedBehindAnUpdateOfItsBytes) {
  const at::NoGradGuard no_grad;
  Parameter matrix, bias;
  matrix.layer = bias.layer = 0;
  matrix.sizes = {128, 64}, bias.sizes = {128};
  Parameters parameters({"matrix", "bias"}, std::vector<at::Tensor>{at::zeros({128, 64}), at::zeros({128})},
                        {devices_[0], devices_[0]}, {}, {},
                        {.units = {0, 0},
                         .values = Place::kHost,
                         .gradients = Place::kHost,
                         .homes = {},
                         .nvme = {},
                         .tiles = 2,
                         .table = {matrix, bias},
                         .layout = MatrixLayout::kOutIn});
  for (const double value : {1.0, 2.0, 3.0}) {
    parameters.walk(Parameters::Walk::kUpdate, [&](size_t index) {
      if (index == 0) parameters.run(0, 0, 128 * 64).value.fill_(value);
    });
    parameters.follow({{0, false}});
    const auto check = [&](const at::Tensor& tile, int64_t first, int64_t) {
      EXPECT_TRUE(tile.eq(value).all().item<bool>()) << value << " from row " << first;
    };
    parameters.weights().tiled(0)->for_each_tile(TiledMatrix::Cut::kRows, check);
  }
}

// Of the host what is page-locked, for one layer that is nearly all of the model.
TEST(TilesOnNvmeMemory, TheHostHasBuffersOfWholeMatricesAsTheEstimateSays) {
  std::string fault;
  ASSERT_TRUE(Core::install("", &fault)) << fault;
  const ScratchFolder scratch;
  Config config;
  config.model = small_gpt2(1, 512, 2, 16);
  config.train = {.steps = 2, .batch = 2, .warmup = 1};
  config.data.corpus = scratch.corpus();
  config.run.out = scratch.file("run");
  config.run.nvme = scratch.file("");
  config.run.nvme_least_bytes = 64 << 10;
  config.plan = tiles_at({.micro_batch = 1, .evaluation_batch = 1}, Place::kNvme, 8);
  PageLocked::begin_most();
  const uint64_t before = PageLocked::bytes().now;
  const Results results = train(config, {.resume = "", .stop = nullptr, .quiet = true});
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  Machine machine;
  machine.nvme_least_bytes = config.run.nvme_least_bytes;
  const Estimate estimated = estimate(config.shape(), results.plan, machine);
  const double locked = double(PageLocked::bytes().most - before);
  EXPECT_NEAR(locked, double(estimated.host_bytes), 0.03 * locked);
  EXPECT_NEAR(double(results.memory.at(0).peak_live), double(estimated.device_peak_bytes[0]),
              0.03 * double(estimated.device_peak_bytes[0]));
}

}  // namespace
}  // namespace spillway::trainer
