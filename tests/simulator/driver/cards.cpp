// Real cards: what the driver says of them, how they are chosen, and which of them a program sees.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "simulator/cards/cards.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using testing::HasSubstr;

int attribute(const driver::Table& table, CUdevice_attribute which) {
  int value = -1;
  EXPECT_EQ(table.cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
  return value;
}

size_t total_bytes(const driver::Table& table, int device = 0) {
  size_t bytes = 0;
  EXPECT_EQ(table.cuDeviceTotalMem(&bytes, device), CUDA_SUCCESS);
  return bytes;
}

TEST(Cards, the_table_holds_together) {
  std::set<std::string_view> ids;
  for (const cards::Card& card : cards::cards()) {
    SCOPED_TRACE(card.id);
    EXPECT_TRUE(ids.insert(card.id).second);
    EXPECT_NE(cards::find_architecture(card.major, card.minor), nullptr);
    EXPECT_LT(card.capacity_bytes, card.framebuffer_bytes);
    EXPECT_GT(card.capacity_bytes, card.framebuffer_bytes / 100 * 95);
    EXPECT_GT(cards::memory_gbs(card), 250);
    EXPECT_EQ(cards::find_card(card.id), &card);
  }
  EXPECT_GE(ids.size(), 12u);
}

TEST(Cards, a_name_may_be_written_in_several_ways) {
  const cards::Card* card = cards::find_card("a100-40gb");
  ASSERT_NE(card, nullptr);
  EXPECT_EQ(cards::find_card("A100 40GB"), card);
  EXPECT_EQ(cards::find_card("a10040gb"), card);
  EXPECT_EQ(cards::find_card("a100"), nullptr);
  for (const char* part : {"t4", "T4-16", "4090", "NVIDIA GeForce RTX 4090", "l40s"})
    EXPECT_NE(cards::find_card(part), nullptr) << part;
  EXPECT_EQ(cards::find_card("4"), nullptr);
  EXPECT_EQ(cards::find_card(""), nullptr);
  ASSERT_TRUE(cards::nearest_card("h100-80g"));
  EXPECT_EQ(cards::nearest_card("h100-80g")->id, "h100-80gb");
  EXPECT_THAT(cards::unknown_card("rtx4091-24gb"), HasSubstr("did you mean 'rtx4090-24gb'"));
  EXPECT_FALSE(cards::nearest_card(std::string(100000, 'x')));
}

TEST(Cards, the_driver_gives_the_cards_properties) {
  in_process({{"SPILLWAY_SIM_CARD", "T4 16GB"}}, [] {
    const driver::Table& table = started_driver();
    char name[64];
    EXPECT_EQ(table.cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    EXPECT_STREQ(name, "Tesla T4");
    EXPECT_EQ(total_bytes(table), 15642329088u);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 5);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 40);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 65536);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), 1024);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 0);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  });
  in_process({{"SPILLWAY_SIM_CARD", "h100-80gb"}}, [] {
    const driver::Table& table = started_driver();
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 1);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 50 << 20);
  });
}

TEST(Cards, capacity_overrides_and_an_unknown_card_is_refused) {
  in_process({{"SPILLWAY_SIM_CARD", "a100-80gb"}, {"SPILLWAY_SIM_CAPACITY", "8GiB"}},
             [] { EXPECT_EQ(total_bytes(started_driver()), 8192 * kMiB); });
  in_process({{"SPILLWAY_SIM_CARD", "a100-8gb"}}, [] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr("SPILLWAY_SIM_CARD: 'a100-8gb' is no card of the table: did you mean 'a100-80gb'?"));
  });
}

class CardFile : public testing::Test {
 protected:
  CardFile() : path_("/tmp/spillway-card-" + std::to_string(getpid()) + ".toml") {}
  ~CardFile() override { std::filesystem::remove(path_); }
  Settings holding(const std::string& text) {
    std::ofstream(path_) << text;
    return {{"SPILLWAY_SIM_CONFIG", path_}};
  }
  const std::string path_;
};

TEST_F(CardFile, chooses_the_card_and_may_change_it) {
  in_process(holding("capacity = \"1GiB\"\ncard = \"L4-24GB\"\n"), [] {
    const driver::Table& table = started_driver();
    EXPECT_EQ(total_bytes(table), 1024 * kMiB) << "the key counts, wherever it stands";
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 58);
  });
  Settings both = holding("card = \"l4-24gb\"\n");
  both["SPILLWAY_SIM_CARD"] = "t4-16gb";
  in_process(both, [] { EXPECT_EQ(total_bytes(started_driver()), 15642329088u); });
  in_process(holding("capability = \"7.0\"\nmultiprocessors = 80\n"), [] {
    const driver::Table& table = started_driver();
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
    EXPECT_EQ(attribute(table, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 80);
  });
  for (const char* wrong : {"capability = \"6.5\"", "capability = \"x\"", "capability = 7.0",
                            "card = \"b300\"", "multiprocessors = 0"})
    in_process(holding(wrong), [] { EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE); });
}

// The places in the machine of the devices that a program sees.
std::vector<uint32_t> seen(const driver::Table& table) {
  std::vector<uint32_t> places;
  SpillwaySimulatorUsage usage;
  for (int device = 0; table.simulator->usage(device, &usage) == CUDA_SUCCESS; ++device)
    places.push_back(usage.physical);
  return places;
}

void expect_visible(const std::string& setting, const std::vector<uint32_t>& places) {
  SCOPED_TRACE(setting);
  in_process({{"SPILLWAY_SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", setting}}, [&] {
    const driver::Table& table = loaded_driver();
    EXPECT_EQ(table.cuInit(0), places.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS);
    EXPECT_EQ(seen(table), places);
  });
}

TEST(Visible, devices_are_those_that_the_variable_names) {
  expect_visible("2", {2});
  expect_visible("3,1", {3, 1});
  expect_visible(" 1 , 0", {1, 0});
  expect_visible("1,9,2", {1});
  expect_visible("0,-1,2", {0});
  expect_visible("x", {});
  expect_visible("-1", {});
  expect_visible("", {});
  expect_visible("1,1", {});
  expect_visible(cards::uuid_text(2) + ",0", {2, 0});
  expect_visible("GPU-53", {});  // several begin so
  expect_visible("99999999999999999999", {});
}

TEST(Visible, a_card_keeps_its_identity) {
  in_process({{"SPILLWAY_SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "2,0"}}, [] {
    const driver::Table& table = started_driver();
    CUuuid uuid = {};
    EXPECT_EQ(table.cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
    EXPECT_EQ(uuid.bytes[15], 2);
    char bus[16];
    EXPECT_EQ(table.cuDeviceGetPCIBusId(bus, sizeof bus, 0), CUDA_SUCCESS);
    EXPECT_STREQ(bus, "0000:12:00.0");
    CUdevice device = -1;
    EXPECT_EQ(table.cuDeviceGetByPCIBusId(&device, "0000:10:00.0"), CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
    EXPECT_EQ(table.cuDeviceGetByPCIBusId(&device, "0000:11:00.0"), CUDA_ERROR_INVALID_DEVICE);
  });
}

}  // namespace
}  // namespace spillway::test
