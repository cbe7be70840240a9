// The settings of a process: what is understood, and what is refused with a text that helps.
#include "strategies/environment.h"

#include <gtest/gtest.h>

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
}

TEST(Environment, NamesTheKnownStrategiesWhenOneIsUnknown) {
  Environment environment;
  std::string error;
  EXPECT_FALSE(parse_strategies("stitch,stich", &environment, &error));
  EXPECT_NE(error.find("'stich'"), std::string::npos);
  EXPECT_NE(error.find("wait_for_events"), std::string::npos);
  EXPECT_TRUE(environment.release_cache) << "nothing is changed by a text that is refused";
}

}  // namespace
}  // namespace spillway
