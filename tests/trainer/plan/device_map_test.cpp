// Which layers lie on which device: by name, and when a device runs out of memory.
#include "trainer/plan/device_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

using testing::ElementsAre;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Layers of a stack on each device.
std::vector<uint32_t> counts(const DeviceMap& map, uint32_t first, uint32_t layers, uint32_t devices) {
  std::vector<uint32_t> on(devices);
  for (uint32_t layer = first; layer < first + layers; ++layer) {
    const auto found = map.find(layer);
    ++on.at(found == map.end() ? 0 : found->second);
  }
  return on;
}

bool in_order(const DeviceMap& map, uint32_t first, uint32_t layers) {
  uint32_t before = 0;
  for (uint32_t layer = first; layer < first + layers; ++layer) {
    const auto found = map.find(layer);
    const uint32_t device = found == map.end() ? 0 : found->second;
    if (device < before) return false;
    before = device;
  }
  return true;
}

// T5's sizes as Hugging Face has them: google-t5/t5-small to t5-11b.
Architecture t5(uint32_t layers, uint32_t width, uint32_t heads, uint32_t head_width, uint32_t hidden) {
  Architecture model = Architecture::usual(Family::kT5, layers, width, heads, 512);
  model.head_width = head_width, model.hidden = hidden, model.vocabulary = 32128;
  return model;
}
const Architecture kSmall = t5(6, 512, 8, 64, 2048), kBase = t5(12, 768, 12, 64, 3072),
                   kLarge = t5(24, 1024, 16, 64, 4096), k3b = t5(24, 1024, 32, 128, 16384),
                   k11b = t5(24, 1024, 128, 128, 65536);

// What transformers' get_device_map(layers, range(devices)) gives each stack.
TEST(DeviceMap, EvenIsThatOfTransformersParallelize) {
  struct Case {
    Architecture model;
    uint32_t devices;
    std::vector<uint32_t> each;
  };
  const Case cases[] = {{kSmall, 2, {3, 3}},
                        {kSmall, 3, {2, 2, 2}},
                        {kSmall, 4, {2, 2, 2, 0}},
                        {kBase, 4, {3, 3, 3, 3}},
                        {kBase, 8, {2, 2, 2, 2, 2, 2, 0, 0}},
                        {kLarge, 4, {6, 6, 6, 6}},
                        {k3b, 5, {5, 5, 5, 5, 4}},
                        {k11b, 4, {6, 6, 6, 6}},
                        {k11b, 1, {24}}};
  for (const Case& each : cases) {
    const DeviceMap map = device_map_even(each.model, each.devices);
    EXPECT_EQ(counts(map, 0, each.model.layers, each.devices), each.each);
    EXPECT_EQ(counts(map, each.model.layers, each.model.decoder_layers, each.devices), each.each);
    EXPECT_TRUE(in_order(map, 0, each.model.layers));
  }
  EXPECT_EQ(counts(device_map_even(small_gpt2(5, 64, 4, 32), 2), 0, 5, 2), (std::vector<uint32_t>{3, 2}));
}

double largest(const Shape& shape, const Machine& machine, const DeviceMap& map) {
  Plan plan{.micro_batch = 2};
  plan.placement = map;
  return double(std::ranges::max(estimate(shape, plan, machine).device_peak_bytes));
}

TEST(DeviceMap, BalancedIsAsGoodAsAnExhaustiveSearchOfRuns) {
  Architecture wide = small_gpt2(7, 128, 4, 64);
  wide.vocabulary = 8192;
  for (const Architecture& model : {wide, small_gpt2(7, 128, 4, 64)}) {
    const Shape shape{.model = model, .batch = 8};
    const Machine machine{.devices = 3};
    double best = 0;
    for (uint32_t one = 0; one <= 7; ++one)
      for (uint32_t two = one; two <= 7; ++two) {
        DeviceMap map;
        for (uint32_t layer = one; layer < 7; ++layer) map[layer] = layer < two ? 1 : 2;
        const double need = largest(shape, machine, map);
        if (best == 0 || need < best) best = need;
      }
    const DeviceMap map = device_map_balanced(shape, {.micro_batch = 2}, machine);
    EXPECT_EQ(largest(shape, machine, map), best);
    EXPECT_TRUE(in_order(map, 0, 7));
  }
}

TEST(DeviceMap, BalancedGivesTheFirstDeviceFewerLayersBesideTheEmbeddingAndTheHead) {
  const Shape shape{.model = kSmall, .batch = 8, .numerics = {.precision = Precision::kBf16Mixed}};
  const Machine machine{.devices = 4};
  const Plan plan{.micro_batch = 2};
  for (const DeviceSpread by : {DeviceSpread::kBalanced, DeviceSpread::kBalancedTime}) {
    const DeviceMap map = device_map(by, shape, plan, machine);
    EXPECT_TRUE(in_order(map, 0, 6) && in_order(map, 6, 6));
    EXPECT_LT(counts(map, 0, 12, 4)[0], 3u) << "of twelve layers on four devices";
  }
  EXPECT_LT(largest(shape, machine, device_map_balanced(shape, plan, machine)),
            largest(shape, machine, device_map_even(kSmall, 4)));
}

TEST(DeviceMap, BalancedGivesALargerCardMore) {
  const Shape shape{.model = small_gpt2(12, 256, 4, 128), .batch = 4};
  const Machine machine{.devices = 2, .device_limits = {2 * kGiB, kGiB}};
  const std::vector<uint32_t> on = counts(device_map_balanced(shape, {}, machine), 0, 12, 2);
  EXPECT_GT(on[0], on[1]);
}

TEST(DeviceMap, T5With11BillionParametersFitsFourCardsOf24GB) {
  const Numerics numerics{.precision = Precision::kBf16, .optimizer = OptimizerKind::kAdamW8bit};
  const Shape shape{.model = k11b, .batch = 4, .numerics = numerics};
  const Machine machine{.devices = 4, .device_bytes = uint64_t{24} * 1000 * 1000 * 1000};
  Plan plan{.micro_batch = 1};
  for (uint32_t layer = 0; layer < 48; ++layer) plan.recompute.insert(layer);
  plan.placement = device_map_balanced(shape, plan, machine);
  const Estimate needed = estimate(shape, plan, machine);
  for (const uint64_t bytes : needed.device_peak_bytes) EXPECT_LT(bytes, machine.device_bytes);
  EXPECT_EQ(std::ranges::count_if(needed.device_peak_bytes, [](uint64_t bytes) { return bytes > 10 * kGiB; }),
            4);
}

std::optional<Move> shift(const std::vector<Move>& moves) {
  for (const Move& move : moves)
    if (move.kind == MoveKind::kShiftLayers) return move;
  return std::nullopt;
}

TEST(ShiftLayers, GoesFromTheDeviceThatIsShortToTheOneWithMostRoom) {
  const Shape shape{.model = small_gpt2(9, 128, 4, 64), .batch = 4};
  const Machine machine{.devices = 3};
  Plan plan{.micro_batch = 4};
  for (uint32_t layer = 1; layer < 8; ++layer) plan.placement[layer] = 1;
  const auto moved = shift(neighbours(plan, shape, machine, Guarantee::kBitExact, 1));
  ASSERT_TRUE(moved);
  EXPECT_GT(moved->bytes_freed, 0u) << "of device 1";
  const std::vector<uint32_t> on = counts(moved->to.placement, 0, 9, 3);
  EXPECT_EQ(on[0], 2u) << "it has the embedding and the head";
  EXPECT_THAT(on, ElementsAre(2, testing::Gt(2), testing::Gt(2)));
  EXPECT_EQ(moved->to.device_of(7), 2u) << "the last ones go up";
  EXPECT_EQ(moved->to.device_of(1), 1u);
}

TEST(ShiftLayers, GoesDownWhereThatIsTheRoom) {
  const Shape shape{.model = small_gpt2(8, 128, 4, 64), .batch = 4};
  Plan plan{.micro_batch = 4};
  for (uint32_t layer = 0; layer < 8; ++layer) plan.placement[layer] = 1;
  const auto moved = shift(neighbours(plan, shape, {.devices = 2}, Guarantee::kBitExact, 1));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->to.device_of(0), 0u);
  EXPECT_EQ(moved->to.device_of(7), 1u);
}

TEST(ShiftLayers, KeepsToWhatTheOtherDeviceMayUse) {
  const Shape shape{.model = small_gpt2(8, 128, 4, 64), .batch = 4};
  const Plan plan{.micro_batch = 4};
  const uint64_t all = estimate(shape, plan, {}).device_peak_bytes[0];
  const auto least = [&](uint64_t other) {
    return shift(
        neighbours(plan, shape, {.devices = 2, .device_limits = {all, other}}, Guarantee::kBitExact));
  };
  EXPECT_FALSE(least(all / 100));
  const auto small = least(all / 4), large = least(all * 4);
  ASSERT_TRUE(small && large);
  EXPECT_LT(counts(small->to.placement, 0, 8, 2)[1], counts(large->to.placement, 0, 8, 2)[1]);
}

TEST(ShiftLayers, IsNoMoveWhereItHelpsNobody) {
  const Shape shape{.model = small_gpt2(2, 64, 2, 32), .batch = 4};
  EXPECT_FALSE(shift(neighbours({}, shape, {.devices = 1}, Guarantee::kBitExact)));
  EXPECT_FALSE(shift(neighbours({}, shape, {.devices = 2}, Guarantee::kBitExact, 1))) << "it has no layer";
}

}  // namespace
}  // namespace spillway::trainer
