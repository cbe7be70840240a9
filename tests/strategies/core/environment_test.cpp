// The settings of a process: what is understood, and what is refused with a text that helps.
#include "strategies/core/environment.h"

#include <gtest/gtest.h>

#include <random>

namespace spillway {
namespace {

TEST(Environment, UnderstandsAmountsOfMemory) {
  const std::pair<const char*, uint64_t> amounts[] = {{"8GiB", uint64_t{8} << 30},
                                                      {" 512 MiB ", uint64_t{512} << 20},
                                                      {"1.5gib", uint64_t{3} << 29},
                                                      {"1000000", 1000000},
                                                      {"2 GB", 2000000000},
                                                      {"64KiB", 65536},
                                                      {"", 0},
                                                      {"0", 0},
                                                      {"123B", 123}};
  for (const auto& [text, bytes] : amounts) {
    uint64_t got = 1;
    std::string error;
    EXPECT_TRUE(parse_bytes(text, &got, &error)) << text << ": " << error;
    EXPECT_EQ(got, bytes) << text;
  }
}

TEST(Environment, RefusesOtherTexts) {
  for (const char* text : {"lots", "-1", "8 Gib of memory", "0x10", "nan", "inf", "1e300", "9999999999TiB",
                           "GiB", "8GiBB", "1 2", "\xff\xfe"}) {
    uint64_t got = 0;
    std::string error;
    EXPECT_FALSE(parse_bytes(text, &got, &error)) << text << " gave " << got;
    EXPECT_NE(error.find("8GiB"), std::string::npos) << "says what would be right: " << error;
  }
}

TEST(Environment, SplitsAFolderFromItsSizeAtTheLastColon) {
  std::string folder, error;
  uint64_t bytes = 1;
  EXPECT_TRUE(parse_nvme("/scratch:200GiB", &folder, &bytes, &error)) << error;
  EXPECT_EQ(folder, "/scratch");
  EXPECT_EQ(bytes, uint64_t{200} << 30);
  EXPECT_TRUE(parse_nvme("/with:colons/in it:2097152", &folder, &bytes, &error)) << error;
  EXPECT_EQ(folder, "/with:colons/in it");
  EXPECT_EQ(bytes, uint64_t{2} << 20);
  EXPECT_TRUE(parse_nvme("", &folder, &bytes, &error));
  EXPECT_EQ(bytes, 0u);
  for (const std::string_view text : {"/scratch", ":8GiB", "/scratch:", "/scratch:lots", "/scratch:0", "8GiB",
                                      "/scratch:1MiB", "/scratch:-8GiB"}) {
    EXPECT_FALSE(parse_nvme(text, &folder, &bytes, &error)) << text;
    EXPECT_NE(error.find("as in /scratch:200GiB"), std::string::npos) << error;
    EXPECT_EQ(bytes, 0u) << text;
  }
}

// Any bytes: an answer or a text, and a size only with a folder.
TEST(Environment, AnyTextForAFileIsAnsweredOrRefused) {
  std::mt19937 random(11);
  using namespace std::string_view_literals;
  constexpr auto kLetters = "/:.a8 GiBMkT-+e\n\0\xff"sv;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = kLetters[random() % kLetters.size()];
    std::string folder, error;
    uint64_t bytes = 0;
    const bool taken = parse_nvme(text, &folder, &bytes, &error);
    ASSERT_EQ(taken, error.empty()) << text;
    ASSERT_EQ(folder.empty(), bytes == 0) << text;
    if (bytes != 0) {
      ASSERT_GE(bytes, 2u << 20);
      ASSERT_EQ(text.compare(0, folder.size() + 1, folder + ":"), 0);
    }
  }
}

TEST(Environment, ChoosesStrategiesByName) {
  Environment all, one, none, spaced;
  std::string error;
  EXPECT_TRUE(parse_strategies("", &all, &error));
  EXPECT_TRUE(all.stitch && all.release_cache && all.wait_for_events && all.registered);
  EXPECT_TRUE(parse_strategies("release_cache", &one, &error));
  EXPECT_TRUE(!one.stitch && one.release_cache && !one.wait_for_events && !one.registered);
  EXPECT_TRUE(parse_strategies("none", &none, &error));
  EXPECT_TRUE(!none.stitch && !none.release_cache && !none.wait_for_events && !none.registered);
  EXPECT_TRUE(parse_strategies(" stitch , registered,", &spaced, &error));
  EXPECT_TRUE(spaced.stitch && spaced.registered && !spaced.release_cache);
  Environment guests;
  EXPECT_TRUE(parse_strategies("evict_guests", &guests, &error)) << error;
  EXPECT_TRUE(guests.evict_guests && !guests.spill_to_peer);
}

TEST(Environment, LegacyIpcIsForNoPoolsPrivateOnesOrAll) {
  DriverMemory whose = DriverMemory::kNoPools;
  std::string error;
  EXPECT_TRUE(parse_legacy_ipc("pools", &whose, &error));
  EXPECT_EQ(whose, DriverMemory::kPrivatePools);
  EXPECT_TRUE(parse_legacy_ipc(" ALL ", &whose, &error));
  EXPECT_EQ(whose, DriverMemory::kEveryPool);
  EXPECT_FALSE(parse_legacy_ipc("1", &whose, &error));
  EXPECT_EQ(error, "'1' is neither off, nor pools (MemPool and CUDA graphs), nor all (every tensor)");
  EXPECT_EQ(whose, DriverMemory::kEveryPool);
}

TEST(Environment, SaysHowLargeHandlesAre) {
  HandleRule rule;
  std::string error;
  EXPECT_TRUE(parse_handles("32MiB:64", &rule, &error)) << error;
  EXPECT_EQ(rule.most_bytes, uint64_t{32} << 20);
  EXPECT_EQ(rule.share, 64u);
  EXPECT_TRUE(parse_handles("2MiB", &rule, &error)) << error;
  EXPECT_EQ(rule.most_bytes, uint64_t{2} << 20);
  for (const char* wrong : {"1MiB:64", "32MiB:0", "32MiB:x", ":64", "32MiB:"}) {
    EXPECT_FALSE(parse_handles(wrong, &rule, &error)) << wrong;
    EXPECT_NE(error.find("32MiB:64"), std::string::npos) << error;
  }
}

TEST(Environment, NamesTheKnownStrategiesWhenOneIsUnknown) {
  Environment environment;
  std::string error;
  EXPECT_FALSE(parse_strategies("stitch,stich", &environment, &error));
  EXPECT_NE(error.find("'stich'"), std::string::npos);
  EXPECT_NE(error.find("wait_for_events"), std::string::npos);
  EXPECT_NE(error.find("evict_guests"), std::string::npos) << "reports name it";
  EXPECT_TRUE(environment.release_cache) << "nothing is changed by a text that is refused";
}

}  // namespace
}  // namespace spillway
