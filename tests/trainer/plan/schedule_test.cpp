// The order in which layers are used, and what it needs where they live on the host.
#include "trainer/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {
namespace {

// "0 1 1' 0'": a backward has a stroke.
std::string text_of(const std::vector<UnitUse>& uses) {
  std::string text;
  for (const UnitUse& use : uses)
    text += (text.empty() ? "" : " ") + std::to_string(use.unit) + (use.backward ? "'" : "");
  return text;
}

TEST(Schedule, UnitsAreThePartsOfTheTable) {
  for (const Family family : kFamilies) {
    const Architecture model = small_model_of(family, 0);
    const std::vector<Parameter> table = parameter_table(model);
    const std::vector<int> units = units_of(table);
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i].layer < 0) {
        EXPECT_EQ(units[i], -1);
        continue;
      }
      const auto layer = uint32_t(table[i].layer);
      const uint32_t part = uint32_t(units[i]) - first_unit(model, layer);
      EXPECT_EQ(parts_of_layer(model, layer).at(part), table[i].part) << table[i].name;
    }
  }
}

TEST(Schedule, TheBackwardBeginsWhereTheForwardEnds) {
  const Architecture model = small_gpt2(3, 16, 2, 8);
  EXPECT_EQ(text_of(training_uses(model, {})), "0 1 2 3 4 5 5' 4' 3' 2' 1' 0'");
  EXPECT_EQ(text_of(evaluation_uses(model)), "0 1 2 3 4 5");
}

TEST(Schedule, WhatIsComputedAgainIsUsedOnceMoreBeforeItsBackward) {
  const Architecture model = small_gpt2(2, 16, 2, 8);
  EXPECT_EQ(text_of(training_uses(model, {.recompute = {0}})), "0 1 2 3 3' 2' 0 1 1' 0'");
  EXPECT_EQ(text_of(training_uses(model, {.recompute_mlp = {0, 1}})), "0 1 2 3 3 3' 2' 1 1' 0'");
  EXPECT_EQ(text_of(training_uses(model, {.recompute_attention = {1}})), "0 1 2 3 3' 2 2' 1' 0'");
}

TEST(Schedule, ASegmentsLayersComeOnceMoreBeforeTheirBackward) {
  const Plan plan{.recompute = {0, 1, 2}, .recompute_segment = 2};
  EXPECT_EQ(text_of(training_uses(small_gpt2(4, 16, 2, 8), plan)),
            "0 1 2 3 4 5 6 7 7' 6' 4 5 5' 4' 0 1 2 3 2 3 3' 2' 0 1 1' 0'");
}

TEST(Schedule, AnOrderThatIsGoneThroughOnceEnds) {
  UseOrder once({0, 1, 1, 0}, false), again({0, 1, 1, 0});
  EXPECT_THAT(once.next(2), testing::ElementsAre(0, 1));
  for (const uint32_t unit : {0, 1, 1}) once.move_to(unit), again.move_to(unit);
  EXPECT_THAT(once.next(2), testing::ElementsAre(0));
  once.move_to(0), again.move_to(0);
  EXPECT_THAT(once.next(2), testing::IsEmpty());
  EXPECT_THAT(again.next(2), testing::ElementsAre(1));
  once.move_to(1);  // there is no other use
  EXPECT_THAT(once.next(2), testing::IsEmpty());
}

TEST(Schedule, ASegmentEndsWithTheEncoder) {
  Architecture model = small_model_of(Family::kT5, 0);
  model.layers = model.decoder_layers = 2;
  const Plan plan{.recompute = {0, 1, 2, 3}, .recompute_segment = 4};
  EXPECT_EQ(text_of(training_uses(model, plan)),
            "0 1 2 3 4 5 6 7 8 9 4 5 6 7 8 9 7 8 9 9' 8' 7' 4 5 6 6' 5' 4' "
            "0 1 2 3 2 3 3' 2' 0 1 1' 0'");
}

TEST(Schedule, TheNextLayersAreOthersThanThePresentOneAndAnOrderBeginsAnew) {
  UseOrder order({0, 1, 2, 2, 1, 0});
  EXPECT_EQ(order.next(2), (std::vector<uint32_t>{0, 1}));
  order.move_to(2);
  EXPECT_EQ(order.next(2), (std::vector<uint32_t>{1, 0}));
  order.move_to(2);
  order.move_to(1);
  order.move_to(0);
  EXPECT_EQ(order.next(5), (std::vector<uint32_t>{1, 2}));
  order.move_to(7);
  EXPECT_EQ(order.next(1), (std::vector<uint32_t>{1})) << "a use that the order has not is no step of it";
}

TEST(Schedule, WhatIsHereAtTheTurnIsNotCopiedAgain) {
  // Of four layers two are there when the backward begins, and two when the next forward does.
  EXPECT_EQ(copied_layers({0, 1, 2, 3, 3, 2, 1, 0}, 2), (std::vector<uint32_t>{2, 3, 1, 0}));
  EXPECT_EQ(copied_layers({0, 1, 2, 3}, 2).size(), 4u);
  EXPECT_EQ(copied_layers({0, 1, 1, 0}, 2).size(), 0u) << "both stay";
}

TEST(Streams, SlotsFollowTheLargestLayerAndNotTheDepth) {
  const auto needed = [](uint32_t layers) {
    const Shape shape{small_gpt2(layers, 256, 4, 64), 4};
    Plan plan{.micro_batch = 1, .optimizer = Place::kHost};
    for (uint32_t layer = 0; layer < layers; ++layer) plan.recompute.insert(layer);
    plan.parameters = plan.gradients = Place::kHost;
    return estimate(shape, plan, {});
  };
  const Estimate few = needed(4), many = needed(16);
  const uint64_t inputs = 64 * 256 * 4;  // of a layer, kept for its backward
  EXPECT_EQ(many.device_peak_bytes[0] - few.device_peak_bytes[0], 12 * inputs);
  EXPECT_GT(many.host_bytes, 3 * few.host_bytes);
}

TEST(Streams, ASlotHoldsALayersLargestPart) {
  const Shape shape{small_gpt2(4, 256, 4, 64), 4};
  Plan plan{.micro_batch = 1};
  plan.parameters = plan.gradients = Place::kHost;
  const uint64_t mlp = 4 * (2 * 256 * 1024 + 1024 + 256 + 2 * 256);
  for (const EstimateItem& item : estimate(shape, plan, {}).items) {
    if (item.name == "slots for parameters") {
      EXPECT_EQ(item.bytes, 3 * mlp);
    }
    if (item.name == "slots for gradients") {
      EXPECT_EQ(item.bytes, 3 * mlp);
    }
  }
}

TEST(Streams, OnADiskTheHostHasBuffersAloneAndSmallLayers) {
  const auto needed = [](uint32_t layers, Place place, uint64_t least) {
    const Shape shape{small_gpt2(layers, 256, 4, 64), 4};
    Plan plan{.micro_batch = 1};
    plan.parameters = plan.gradients = place;
    return estimate(shape, plan, {.nvme_least_bytes = least});
  };
  const Estimate few = needed(8, Place::kNvme, 1 << 20), many = needed(16, Place::kNvme, 1 << 20);
  const Estimate on_host = needed(16, Place::kHost, 1 << 20);
  EXPECT_EQ(few.host_bytes, many.host_bytes);
  EXPECT_EQ(2 * few.nvme_bytes, many.nvme_bytes);
  EXPECT_EQ(many.device_peak_bytes, on_host.device_peak_bytes);
  EXPECT_NEAR(double(many.nvme_bytes), double(on_host.host_bytes), 0.001 * double(many.nvme_bytes));
  const uint64_t mlp = unit_bytes({}, parameter_table(small_gpt2(1, 256, 4, 64)))[1].weights;
  EXPECT_EQ(many.host_bytes, 8 * aligned(mlp, kHugePage))
      << "four buffers for sixteen layers, of weights and of gradients, in whole pages";
  const Estimate small = needed(16, Place::kNvme, 1 << 30);
  EXPECT_EQ(small.nvme_bytes, 0u);
  EXPECT_EQ(small.host_bytes, on_host.host_bytes);
}

TEST(Streams, ADisksReadsAndWritesAreAddedAsFarAsNothingHidesThem) {
  const Shape shape{small_gpt2(8, 256, 4, 64), 4};
  const Plan host{.micro_batch = 2, .gradients = Place::kHost},
      nvme{.micro_batch = 2, .gradients = Place::kNvme};
  double layer = 0;
  for (const UnitBytes& unit : unit_bytes({}, parameter_table(shape.model)))
    layer += double(unit.gradients) / 8;
  Machine machine{.nvme_read_bytes_per_second = 1e15, .nvme_write_bytes_per_second = 1e15};
  EXPECT_EQ(estimate(shape, nvme, machine).time.nvme, 0) << "all hidden";
  machine.nvme_read_bytes_per_second = machine.nvme_write_bytes_per_second = 1e3;
  const StepTime time = estimate(shape, nvme, machine).time;
  // Two micro-batches write all 8 layers; the second one reads those that neither a slot nor a buffer has,
  // and so does the update.
  const double written = 16 * layer / 1e3, read = time.nvme - written;
  EXPECT_GT(read, 8 * layer / 1e3);
  EXPECT_LE(read, 2 * 8 * layer / 1e3 * (1 + 1e-12));
  EXPECT_EQ(time.streamed, estimate(shape, host, machine).time.streamed);
  EXPECT_EQ(time.host_link, estimate(shape, host, machine).time.host_link);
}

TEST(Streams, APassTakesTheLongerOfItsComputationAndItsCopies) {
  const Shape shape{small_gpt2(8, 256, 4, 64), 4};
  Plan plan{.micro_batch = 2, .gradients = Place::kHost};
  double all = 0;
  for (const UnitBytes& unit : unit_bytes({}, parameter_table(shape.model))) all += double(unit.gradients);
  Machine machine{.host_bytes_per_second = 1e12, .launch_seconds = 1e-30};
  StepTime time = estimate(shape, plan, machine).time;
  EXPECT_NEAR(time.streamed, 2 * all / 1e12, 1e-12) << "out after each micro-batch";
  EXPECT_NEAR(time.host_link, all / 1e12, 1e-12) << "in for the update; the norm is taken before they go";
  EXPECT_NEAR(time.seconds(), estimate(shape, {.micro_batch = 2}, machine).time.seconds() + time.host_link,
              1e-12);
  machine.host_bytes_per_second = 1e6;
  time = estimate(shape, plan, machine).time;
  EXPECT_NEAR(time.seconds(), time.streamed + time.optimizer + time.host_link, 1e-12);
  EXPECT_STREQ(time.limit(), "host link");
}

TEST(Streams, AnUpdateBeforeTheNextForwardHasNoWeightsComeForItAlone) {
  const Shape shape{small_gpt2(8, 256, 4, 64), 4};
  Plan plan{.micro_batch = 4, .parameters = Place::kHost, .gradients = Place::kHost};
  double weights = 0, gradients = 0;
  for (const UnitBytes& unit : unit_bytes({}, parameter_table(shape.model)))
    weights += double(unit.weights), gradients += double(unit.gradients);
  const Machine machine{.host_bytes_per_second = 1e6, .launch_seconds = 1e-30};
  const StepTime at_commit = estimate(shape, plan, machine).time;
  plan.just_in_time = true;
  const StepTime in_time = estimate(shape, plan, machine).time;
  EXPECT_NEAR(at_commit.host_link, (gradients + weights) / 1e6, 1e-6);
  EXPECT_NEAR(in_time.host_link, 0, 1e-6);
  EXPECT_NEAR(in_time.streamed - at_commit.streamed, gradients / 1e6, 1e-6);
  EXPECT_NEAR(at_commit.seconds() - in_time.seconds(), weights / 1e6, 1e-6);
}

// An update writes them from the masters.
TEST(Streams, WeightsWithMastersDoNotComeForAnUpdate) {
  Shape shape{small_gpt2(8, 256, 4, 64), 4};
  const Plan plan{.micro_batch = 4, .parameters = Place::kHost};
  const Machine machine{.host_bytes_per_second = 1e6, .launch_seconds = 1e-30};
  const double both_ways = estimate(shape, plan, machine).time.host_link;
  double weights = 0;
  for (const UnitBytes& unit : unit_bytes({}, parameter_table(shape.model))) weights += double(unit.weights);
  EXPECT_NEAR(both_ways, weights / 1e6, 1e-6) << "in and out at the same time";
  shape.numerics.precision = Precision::kBf16Mixed;
  Plan gradients = plan;
  gradients.gradients = Place::kHost;
  const double more = estimate(shape, gradients, machine).time.host_link;
  EXPECT_NEAR(more, weights / 1e6, 1e-6) << "gradients of 32 bits in, and weights of 16 out beside them";
}

// The first forward makes those that are in no slot yet; the gradients come for it.
TEST(Streams, WeightsThatALateUpdateMakesDoNotComeForItsForward) {
  Shape shape{small_gpt2(8, 256, 4, 64), 4};
  shape.numerics.precision = Precision::kBf16Mixed;
  const std::vector<UnitBytes> units = unit_bytes(shape.numerics, parameter_table(shape.model));
  double made = 0, gradients = 0;
  for (size_t i = 0; i < units.size(); ++i)
    made += i < kWeightSlots ? 0 : double(units[i].weights), gradients += double(units[i].gradients);
  const Machine machine{.host_bytes_per_second = 1e6, .launch_seconds = 1e-30};
  Plan plan{.micro_batch = 1, .parameters = Place::kHost, .gradients = Place::kHost};
  const double at_commit = estimate(shape, plan, machine).time.streamed;
  plan.just_in_time = true;
  EXPECT_NEAR(estimate(shape, plan, machine).time.streamed - at_commit, (gradients - made) / 1e6, 1e-6);
}

TEST(Streams, AnInt8MatrixHasItsScalesInTheBlock) {
  const Architecture model = small_model_of(Family::kLlama, 0);
  const Numerics int8{.precision = Precision::kInt8};
  uint64_t stored = 0, tensors = 0;
  for (const Parameter& parameter : parameter_table(model)) {
    if (parameter.layer != 0) continue;
    stored += stored_bytes(int8, parameter), tensors += is_in_8_bits(int8, parameter) ? 2 : 1;
  }
  UnitBytes bytes;
  for (const UnitBytes& unit : unit_bytes(int8, parameter_table(model)))
    if (unit.layer == 0) bytes.weights += unit.weights;
  EXPECT_GE(bytes.weights, stored);
  EXPECT_LT(bytes.weights, stored + tensors * kTensorAlignment);
}

}  // namespace
}  // namespace spillway::trainer
