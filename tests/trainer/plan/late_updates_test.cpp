// States that come beside the forward: what the estimate takes for hidden, and where the planner has them so.
#include "trainer/plan/estimates/late_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/trainer/small_models.h"
#include "trainer/plan/choices.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {
namespace {

constexpr LateUpdate kUnit{.tiles = 60, .link = 6, .update = 1, .forward = 8};

TEST(LateUpdates, AllButTheFirstAreHiddenBesideALongForward) {
  EXPECT_NEAR(shown_by_late_updates({kUnit, kUnit, kUnit}, 60), 6 - 1, 1) << "its update runs beside it";
}

TEST(LateUpdates, OfALinkThatIsSlowerThanTheDeviceAllIsShownThatTheDeviceDoesNotTake) {
  LateUpdate slow = kUnit;
  slow.link = 20;
  const std::vector<LateUpdate> units(10, slow);
  EXPECT_NEAR(shown_by_late_updates(units, 60), 10 * 20.0 - 9 * 9.0 - 1, 2);
}

TEST(LateUpdates, WithHalfOfTheSlotsHalfIsHidden) {
  const std::vector<LateUpdate> units(21, kUnit);
  EXPECT_NEAR((shown_by_late_updates(units, 30) - 5) / 20, 6.0 / 2, 1);
  EXPECT_NEAR((shown_by_late_updates(units, 6) - 5) / 20, 6 * 0.9 - 1, 1);
}

TEST(LateUpdates, MoreSlotsNeverShowMore) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<LateUpdate> units(1 + random() % 12);
    double link = 0, device = 0, longest = 0;
    for (LateUpdate& unit : units) {
      const auto number = [&] { return double(1 + random() % 100) / 10; };
      unit = {.tiles = double(1 + random() % 90), .link = number(), .update = number(), .forward = number()};
      longest = std::max(longest, unit.link);
      link += unit.link, device += unit.update + unit.forward;
    }
    double before = link;
    for (const double slots : {4, 12, 36, 108, 2000}) {
      const double shown = shown_by_late_updates(units, slots);
      EXPECT_LE(shown, before + longest / 8 + 1e-9) << slots << " slots, with runs of an eighth of a unit";
      EXPECT_GE(shown, std::max(0.0, link - device) - 1e-9);
      before = std::min(before, shown);
    }
  }
}

const Shape kWide{.model = small_gpt2(8, 1024, 8, 512), .batch = 16};
const Machine kCard{.flops = 100e12, .host_bytes_per_second = 25e9, .memory_bytes_per_second = 1300e9};

TEST(LateUpdates, AreAheadByTheTilesOfAPart) {
  Plan plan{.micro_batch = 16, .optimizer = Place::kHost};
  const uint64_t before = estimate(kWide, plan, kCard).device_peak_bytes[0];
  const double at_commit = estimate(kWide, plan, kCard).time.seconds();
  ASSERT_TRUE(prefetch_states(&plan, kWide));
  EXPECT_EQ(plan.update_slots, 5 * (8 * 1024 * 1024 / kTileElements + 4) / 4) << "of an MLP, and its vectors";
  const Estimate ahead = estimate(kWide, plan, kCard);
  EXPECT_EQ(ahead.device_peak_bytes[0] - before, (plan.update_slots - kLeastUpdateSlots) * 8 * kTileElements);
  const double link = double(8 * parameter_count(kWide.model)) / kCard.host_bytes_per_second;
  EXPECT_LT(ahead.time.seconds(), at_commit - 0.5 * link);
  EXPECT_LT(ahead.time.host_link, 0.4 * link) << "what belongs to no layer, and more than a part computes";
}

TEST(LateUpdates, StatesOfOtherPlacesAndRanksHaveNone) {
  Shape ranks = kWide;
  ranks.ranks = 2, ranks.zero = 1;
  for (const Place place : {Place::kDevice, Place::kNvme}) {
    Plan plan{.optimizer = place};
    EXPECT_FALSE(prefetch_states(&plan, kWide));
    EXPECT_EQ(plan, Plan{.optimizer = place});
  }
  Plan plan{.micro_batch = 4, .optimizer = Place::kHost};
  EXPECT_FALSE(prefetch_states(&plan, ranks));
  const Estimate at_commit = estimate(ranks, plan, kCard);
  plan.just_in_time = true, plan.update_slots = 50;
  const Estimate together = estimate(ranks, plan, kCard);
  EXPECT_EQ(together.device_peak_bytes, at_commit.device_peak_bytes);
  EXPECT_EQ(together.step_us, at_commit.step_us);
}

// Where the card has room for all slots, or only without them.
TEST(LateUpdates, ThePlannerHasThemWhereThereIsRoom) {
  Plan host{.micro_batch = 16, .recompute = {0, 1, 2, 3, 4, 5, 6, 7}, .optimizer = Place::kHost};
  Plan ahead = host;
  ASSERT_TRUE(prefetch_states(&ahead, kWide));
  const auto planned_beside = [&](const Plan& plan) {
    const uint64_t needs = estimate(kWide, plan, kCard).device_peak_bytes[0];
    Machine machine = kCard;
    machine.device_bytes = needs + uint64_t(double(needs) * kPlannerMargin) + kPlannerPages;
    const Planned planned = find_plan(kWide, machine, Guarantee::kBitExact, host);
    return planned.best ? to_string(planned.best->plan) : "";
  };
  EXPECT_THAT(planned_beside(ahead),
              testing::HasSubstr("optimizer=host update=just_in_time update_slots=45"));
  host.offload = host.recompute, host.parameters = host.gradients = Place::kHost;
  EXPECT_THAT(planned_beside(host), testing::Not(testing::HasSubstr("update_slots"))) << "no room";
}

// No state crosses the link, and no gradient and no weight for the update.
TEST(LateUpdates, TheHostsOwnTakeItsTimeBesideTheForwardAndNoneOfTheLink) {
  Machine machine = kCard;
  machine.launch_seconds = 1e-30, machine.host_memory_bytes_per_second = 400e9;
  Plan device{.micro_batch = 16, .parameters = Place::kHost, .gradients = Place::kHost};
  device.optimizer = Place::kHost;
  Plan host = device;
  ASSERT_TRUE(update_on_host(&host, kWide));
  EXPECT_TRUE(host.just_in_time);
  Plan at_commit = host;
  at_commit.just_in_time = false;
  uint64_t layers = 0;
  for (const Parameter& parameter : parameter_table(kWide.model))
    layers += parameter.layer >= 0 ? parameter.elements() : 0;
  const Estimate of_device = estimate(kWide, device, machine), of_host = estimate(kWide, host, machine),
                 of_commit = estimate(kWide, at_commit, machine);
  const double seconds = 28.0 * double(layers) / machine.host_memory_bytes_per_second;  // of its processor
  EXPECT_NEAR(of_commit.time.optimizer - of_host.time.optimizer, seconds, 0.3 * seconds) << "it was hidden";
  EXPECT_LT(of_host.time.seconds(), of_device.time.seconds());
  const double outer = 8.0 * double(parameter_count(kWide.model) - layers) / machine.host_bytes_per_second;
  EXPECT_LT(of_commit.time.host_link, outer) << "of what belongs to no layer alone";
  Shape ranks = kWide;
  ranks.ranks = 4;
  EXPECT_NEAR(estimate(ranks, at_commit, machine).time.optimizer - of_commit.time.optimizer, 3 * seconds,
              1e-3 * seconds)
      << "of one host";
  machine.host_memory_bytes_per_second = 1e9;
  EXPECT_GT(estimate(kWide, host, machine).time.seconds(), of_device.time.seconds());
}

TEST(LateUpdates, TheHostMakesThoseThatHaveTheBitsOfACard) {
  Plan plan{.optimizer = Place::kHost, .parameters = Place::kHost, .gradients = Place::kHost};
  Shape shape = kWide;
  for (const Numerics& numerics : {Numerics{.optimizer = OptimizerKind::kSgd},
                                   {.precision = Precision::kInt8},
                                   {.precision = Precision::kBf16, .optimizer = OptimizerKind::kAdamW8bit},
                                   {.optimizer = OptimizerKind::kAdafactor}}) {
    shape.numerics = numerics;
    EXPECT_FALSE(update_on_host(&plan, shape)) << name_of(numerics.optimizer);
  }
  shape.numerics = {.precision = Precision::kBf16};
  EXPECT_TRUE(update_on_host(&plan, shape));
  shape.ranks = 2, shape.zero = 1;
  EXPECT_FALSE(update_on_host(&plan, shape)) << "ranks update shares";
}

TEST(LateUpdates, AMoveTakesTheSlotsBack) {
  Plan plan{.micro_batch = 16, .optimizer = Place::kHost};
  ASSERT_TRUE(prefetch_states(&plan, kWide));
  const auto moves_of = [](const Plan& from) {
    std::vector<Move> moves = neighbours(from, kWide, kCard, Guarantee::kBitExact);
    std::erase_if(moves, [](const Move& move) { return move.kind != MoveKind::kFewerUpdateSlots; });
    return moves;
  };
  const std::vector<Move> moves = moves_of(plan);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].to.update_slots, kLeastUpdateSlots);
  EXPECT_EQ(moves[0].bytes_freed, (plan.update_slots - kLeastUpdateSlots) * 8 * kTileElements);
  EXPECT_GT(moves[0].cost_us, 0u);
  EXPECT_TRUE(moves_of(moves[0].to).empty());
}

}  // namespace
}  // namespace spillway::trainer
