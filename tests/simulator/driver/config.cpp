// The configuration: what a file and the environment may say, and that nothing else gets through.
#include <gmock/gmock.h>

#include <fstream>
#include <random>
#include <sstream>

#include "simulator/driver/machine/config.h"
#include "simulator/profiles/profiles.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using simulator::apply_toml;
using simulator::Config;
using simulator::parse_bytes;
using testing::HasSubstr;

const char* const kWhole = R"(capacity = "24GiB"
devices = 2
values = "compute"
context_bytes = "300MiB"
poison = true
peer_access = false
call_ns = 50
kernel_ns = 7000
[bandwidth]
h2d = 12.5
d2h = 13
d2d = 900
peer = 50
[kernels]
tile = 128
tflops = 312
[latency_ns]
cuMemCreate = 29000
cuMemSetAccess = 38000
[fail]
call = 3
name = "cuMemCreate"
persistent = true
code = "CUDA_ERROR_UNKNOWN"
seed = 5
probability = 0.5
)";

TEST(Config, a_whole_file_is_understood) {
  Config config;
  ASSERT_EQ(apply_toml(kWhole, "machine.toml", config), "");
  EXPECT_EQ(config.capacity_bytes, uint64_t{24} << 30);
  EXPECT_EQ(config.devices, 2);
  EXPECT_TRUE(config.compute);
  EXPECT_TRUE(config.poison);
  EXPECT_FALSE(config.peer_access);
  EXPECT_EQ(config.context_bytes, uint64_t{300} << 20);
  EXPECT_EQ(config.call_ns, 50u);
  EXPECT_EQ(config.kernel_ns, 7000u);
  EXPECT_EQ(config.bandwidth.h2d, 12.5);
  EXPECT_EQ(config.bandwidth.d2h, 13);
  EXPECT_EQ(config.bandwidth.d2d, 900);
  EXPECT_EQ(config.bandwidth.peer, 50);
  EXPECT_EQ(config.kernels.tile, 128);
  EXPECT_EQ(config.kernels.tflops, 312);
  EXPECT_EQ(config.latency_ns.at("cuMemSetAccess"), 38000u);
  EXPECT_EQ(config.fail.call, 3u);
  EXPECT_EQ(config.fail.name, "cuMemCreate");
  EXPECT_TRUE(config.fail.persistent);
  EXPECT_EQ(config.fail.code, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(config.fail.seed, 5u);
  EXPECT_EQ(config.fail.probability, 0.5);
}

TEST(Config, what_is_wrong_is_named_with_its_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"capacty = 1", "f.toml:1: unknown key 'capacty': did you mean 'capacity'?"},
      {"\n[bandwidth]\nh2h = 1", "f.toml:3: unknown key 'bandwidth.h2h': did you mean 'bandwidth.h2d'?"},
      {"[fail]\nprobabilty = 1", "unknown key 'fail.probabilty': did you mean 'fail.probability'?"},
      {"capacity = \"many\"", "f.toml:1: 'capacity' must be a size of at least 2097152 bytes"},
      {"capacity = 5", "'capacity' must be"},
      {"capacity = -1", "'capacity' must be"},
      {"devices = 0", "'devices' must be a whole number from 1 to 16"},
      {"devices = 1.5", "'devices' must be"},
      {"devices = \"1\"", "'devices' must be"},
      {"values = \"ones\"", "'values' must be \"zeros\", \"random\" or \"compute\""},
      {"poison = 1", "'poison' must be true or false"},
      {"[bandwidth]\nh2d = 0", "'bandwidth.h2d' must be a number from"},
      {"[bandwidth]\nh2d = nan", "'bandwidth.h2d' must be a number from"},
      {"[kernels]\ntile = -1", "'kernels.tile' must be a number from"},
      {"bandwidth = 3", "'bandwidth' must be a section"},
      {"[latency_ns]\ncuMemCrate = 3",
       "'latency_ns.cuMemCrate' is no driver function that the simulator implements: did you mean "
       "'cuMemCreate'?"},
      {"[latency_ns]\ncuMemCreate = -3", "'latency_ns.cuMemCreate' must be a whole number"},
      {"[fail]\nname = \"cuArrayDestroy\"", "'fail.name' must be a driver function"},
      {"[fail]\ncode = \"OOM\"", "'fail.code' must be the name of an error"},
      {"[fail]\nprobability = 2", "'fail.probability' must be a number from 0 to 1"},
      {"devices = = 2", "f.toml:1: "},
  };
  for (const auto& [file, expected] : cases) {
    Config config;
    EXPECT_THAT(apply_toml(file, "f.toml", config), HasSubstr(expected)) << file;
  }
}

TEST(Config, sizes_have_units) {
  EXPECT_EQ(parse_bytes("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(parse_bytes("16GB"), 16'000'000'000u);
  EXPECT_EQ(parse_bytes(" 1.5 MiB "), 1'572'864u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("0"), 0u);
  for (const char* bad :
       {"", "GiB", "8 gigs", "-1", "1e9", "nan", "inf", "8GiBB", "99999999TiB", "0x10", "1 2"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
}

TEST(Config, cuInit_fails_on_a_bad_environment_and_says_why) {
  const std::pair<Settings, const char*> cases[] = {
      {{{"SPILLWAY_SIM_CAPACITY", "lots"}}, "SPILLWAY_SIM_CAPACITY is 'lots'"},
      {{{"SPILLWAY_SIM_CAPACITY", "1"}}, "SPILLWAY_SIM_CAPACITY is '1'"},
      {{{"SPILLWAY_SIM_DEVICES", "99"}}, "SPILLWAY_SIM_DEVICES is '99'"},
      {{{"SPILLWAY_SIM_DEVICES", "1x"}}, "SPILLWAY_SIM_DEVICES is '1x'"},
      {{{"SPILLWAY_SIM_VALUES", "some"}}, "SPILLWAY_SIM_VALUES is 'some'"},
      {{{"SPILLWAY_SIM_MASKS", "half"}}, "SPILLWAY_SIM_MASKS is 'half': write all or none"},
      {{{"SPILLWAY_SIM_WATCHDOG", "no"}}, "SPILLWAY_SIM_WATCHDOG is 'no': write awaited or free"},
      {{{"SPILLWAY_SIM_CONFIG", "/nowhere.toml"}}, "/nowhere.toml cannot be read"},
      {{{"SPILLWAY_SIM_CONFIG", "/tmp"}}, "/tmp cannot be read"},
  };
  for (const auto& [settings, expected] : cases)
    in_process(settings, [&] {
      const driver::Table& table = loaded_driver();
      testing::internal::CaptureStderr();
      EXPECT_EQ(table.cuInit(0), CUDA_ERROR_INVALID_VALUE);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(expected));
      int count = 0;
      EXPECT_EQ(table.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    });
}

TEST(Config, a_file_sets_the_machine_and_the_environment_wins) {
  const std::string path = "/tmp/spillway-config-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << kWhole;
  in_process({{"SPILLWAY_SIM_CONFIG", path}, {"SPILLWAY_SIM_CAPACITY", "1GiB"}}, [] {
    const driver::Table& table = started_driver();
    int count = 0;
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, uint64_t{1} << 30);
    EXPECT_EQ(total - free, 300 * kMiB) << "the context's own memory";
    EXPECT_EQ(table.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, free);
    const CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle page = 0;
    std::vector<CUresult> results;
    for (int i = 0; i < 4; ++i) results.push_back(table.cuMemCreate(&page, kPage, &prop, 0));
    EXPECT_EQ(results[2], CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(results[3], CUDA_ERROR_UNKNOWN) << "persistent";
    EXPECT_GE(counts(table).driver_stall_ns, 4 * 29'000u);
  });
  std::remove(path.c_str());
}

// Damages a good file in a thousand ways: an answer, never a crash, and no setting outside its range.
TEST(Config, any_text_is_read_or_refused) {
  std::mt19937 random(1);
  const std::string whole = kWhole;
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (unsigned edits = random() % 4 + 1; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 8 + 1);
          break;
        case 2:
          text.insert(at, whole.substr(random() % whole.size(), random() % 12));
          break;
        case 3:
          text.resize(at);
          break;
      }
    }
    Config config;
    accepted += apply_toml(text, "fuzz.toml", config).empty();
    EXPECT_GE(config.capacity_bytes, simulator::kGranularity);
    EXPECT_GE(config.devices, 1);
    EXPECT_LE(config.devices, simulator::kMaxDevices);
    EXPECT_GT(config.bandwidth.h2d, 0);
    EXPECT_GE(config.call_ns, 1u);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 3000);
}

TEST(Profiles, each_is_understood_and_says_what_it_is_for) {
  ASSERT_FALSE(profiles::all().empty());
  for (const profiles::Profile& profile : profiles::all()) {
    Config config;
    EXPECT_EQ(simulator::apply_profiles(profile.name, config), "") << profile.name;
    EXPECT_GT(profile.purpose().size(), 20u) << profile.name;
  }
}

TEST(Profiles, a_list_is_applied_in_its_order_and_a_file_wins) {
  Config config;
  EXPECT_EQ(simulator::apply_profiles("pcie-peers,virtual-machine", config), "");
  EXPECT_FALSE(config.driver.native_atomics);
  EXPECT_EQ(config.driver.host_numa_id, -1);
  EXPECT_EQ(apply_toml("[driver]\nhost_numa_id = 0", "m.toml", config), "");
  EXPECT_EQ(config.driver.host_numa_id, 0);
  EXPECT_FALSE(config.driver.native_atomics);
}

TEST(Profiles, an_unknown_one_is_named_with_its_nearest) {
  Config config;
  EXPECT_THAT(simulator::apply_profiles("virtual-machin", config),
              testing::AllOf(HasSubstr("'virtual-machin' is no profile"), HasSubstr("'virtual-machine'")));
  EXPECT_THAT(
      apply_toml("[driver]\nnative_atomic = true", "m.toml", config),
      HasSubstr("m.toml:2: unknown key 'driver.native_atomic': did you mean 'driver.native_atomics'?"));
}

}  // namespace
}  // namespace spillway::test
