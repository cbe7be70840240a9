// Where the layers of a served model lie: maps as an option names them, and one balanced by what a server
// needs.
#include "trainer/serve/engine/placement.h"

#include <gmock/gmock.h>

#include "tests/trainer/small_models.h"

namespace spillway::trainer::serve {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

ServedSizes on(std::vector<uint64_t> rooms) {
  return {.number_bytes = 2, .sequences = 4, .rooms = std::move(rooms)};
}

std::string refused(const std::string& text, const Architecture& model) {
  std::string error;
  EXPECT_FALSE(served_map(text, model, on({64 * kMiB, 64 * kMiB}), &error)) << text;
  return error;
}

DeviceMap map_of(const std::string& text, const Architecture& model, const ServedSizes& sizes) {
  std::string error;
  const auto map = served_map(text, model, sizes, &error);
  EXPECT_TRUE(map) << error;
  return map.value_or(DeviceMap());
}

TEST(Placement, NamesListsAndTablesAreThoseOfATraining) {
  const Architecture model = small_gpt2(4, 16, 2, 8);
  const ServedSizes two = on({64 * kMiB, 64 * kMiB});
  EXPECT_EQ(map_of("first", model, two), DeviceMap());
  EXPECT_EQ(map_of("even", model, two), (DeviceMap{{2, 1}, {3, 1}}));
  EXPECT_EQ(map_of("[1, 0, 1]", model, two), (DeviceMap{{0, 1}, {2, 1}}));
  EXPECT_EQ(map_of("{\"0\" = [0, 3], \"1\" = [1, 2]}", model, two), (DeviceMap{{1, 1}, {2, 1}}));
  const Architecture t5 = small_model_of(Family::kT5, 0);
  EXPECT_EQ(map_of("even", t5, two), device_map_even(t5, 2));
}

TEST(Placement, AWrongMapIsNamed) {
  const Architecture model = small_gpt2(4, 16, 2, 8);
  EXPECT_THAT(refused("evn", model), HasSubstr("--device-map: 'devices' must be \"first\", \"even\""));
  EXPECT_THAT(refused("[0, 2]", model), HasSubstr("layer 1 is on device 2, but there are only 2"));
  EXPECT_THAT(refused("[0, 0, 1, 1, 1]", model), HasSubstr("more layers than the model has (4)"));
  EXPECT_THAT(refused("{\"0\" = [0]}", model), HasSubstr("names no device for layer 1"));
  EXPECT_THAT(refused("balanced_time", model), HasSubstr("say balanced"));
  for (const char* broken : {"[0, 1", "a\"b", "[0]\npipeline = 2"})
    EXPECT_THAT(refused(broken, model), HasSubstr("is no map, such as even"));
}

TEST(Placement, BalancedLeavesEachDeviceRoomForTheSameBlocks) {
  const Architecture model = small_gpt2(16, 256, 4, 1024);
  const auto count = [&](const DeviceMap& map, uint32_t device) {
    uint32_t layers = 0;
    for (const auto& [layer, of] : map) layers += of == device;
    return device == 0 ? model.layers - uint32_t(map.size()) : layers;
  };
  const DeviceMap alike = map_of("balanced", model, on({64 * kMiB, 64 * kMiB}));
  EXPECT_GE(count(alike, 1), 8u);  // the first one has the embedding and the head too
  const DeviceMap large = map_of("balanced", model, on({24 * kMiB, 96 * kMiB}));
  EXPECT_GT(count(large, 1), 11u);
  // A device that cannot even have its weights gets fewer layers, until it can.
  const DeviceMap tight = map_of("balanced", model, on({256 * kMiB, 4 * kMiB}));
  EXPECT_LE(weight_bytes(model, tight, 1, 2), 4 * kMiB);
}

TEST(Placement, LayersAndWeightsOfADeviceAreSaid) {
  const Architecture model = small_gpt2(5, 16, 2, 8);
  const DeviceMap map{{1, 1}, {4, 1}};
  EXPECT_EQ(layers_in_words(model, map, 0), "layers 0, 2 to 3");
  EXPECT_EQ(layers_in_words(model, map, 1), "layers 1, 4");
  EXPECT_EQ(layers_in_words(model, map, 2), "no layer");
  EXPECT_EQ(layers_in_words(model, {{3, 1}}, 1), "layer 3");
  EXPECT_EQ(weight_bytes(model, map, 1, 4), 2 * weight_bytes(model, {{1, 1}}, 1, 4));
  uint64_t all = 0;
  for (const uint32_t device : {0, 1}) all += weight_bytes(model, map, device, 4);
  EXPECT_EQ(all, weight_bytes(model, {}, 0, 4));
}

}  // namespace
}  // namespace spillway::trainer::serve
