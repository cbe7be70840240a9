#include "tools/spillway/units.h"

#include <gtest/gtest.h>

namespace spillway::tools {
namespace {

TEST(Units, ReadsSizes) {
  EXPECT_EQ(parse_size("1"), 1u);
  EXPECT_EQ(parse_size("8GiB"), 8ull << 30);
  EXPECT_EQ(parse_size("8 GiB"), 8ull << 30);
  EXPECT_EQ(parse_size("1.5GB"), 1500000000u);
  EXPECT_EQ(parse_size("512KiB"), 512u << 10);
  EXPECT_EQ(parse_size("1024TiB"), 1ull << 50);
  EXPECT_EQ(parse_size("7 B"), 7u);
  EXPECT_EQ(parse_size("3kB"), 3000u);
  EXPECT_EQ(parse_size("3KB"), 3000u);
  EXPECT_EQ(parse_size("2MB"), 2'000'000u);
  EXPECT_EQ(parse_size("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(parse_size("5MiB"), 5u << 20);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "8GIB", "8Gib", "8 G", "-1", "0", "0.1", "nan", "inf", "1e3", "8GiB x",
                           "0x10", "1025TiB", "99999999999999999999999999", "1..5GiB", "８"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Units, WritesSizesAndTimes) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.00 KiB");
  EXPECT_EQ(size_text((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(size_text(3ull << 29), "1.50 GiB");
  EXPECT_EQ(size_text(~0ull), "16.00 EiB");
  EXPECT_EQ(exact_size_text(3ull << 29), "1.50 GiB (1610612736)");
  EXPECT_EQ(duration_text(999), "999 µs");
  EXPECT_EQ(duration_text(12345), "12.3 ms");
  EXPECT_EQ(duration_text(999'600), "1 s");
  EXPECT_EQ(duration_text(4560000), "4.56 s");
  EXPECT_EQ(duration_text(119'999'999), "120 s");
  EXPECT_EQ(duration_text(120'000'000), "2 min 0 s");
  EXPECT_EQ(duration_text(4'939'000'000), "82 min 19 s");
  EXPECT_EQ(duration_text(90'061'000'000), "25 h 1 min");
}

}  // namespace
}  // namespace spillway::tools
