// The events of a rehearsed program, read as a history: tools/spillway/rehearse/report/history.h.
#include <gmock/gmock.h>

#include <random>
#include <sstream>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/rehearse/report/history.h"

namespace spillway::tools {
namespace {

constexpr const char* kRun =
    "spillway-history 1\n"
    "+ 0 10000000 1400000 0 0 0 0\n"  // 20 MiB at 256 MiB
    "a 0 10000000 800000 0 0 0 0\n"   // 8 MiB
    "a 0 10800000 400000 0 0 0 1\n"   // 4 MiB
    "a 1 0 200 0 0 0 0\n"             // another device
    "step 1\n"
    "f 0 10800000 400000 0 0 0 0\n"
    "c 0 10800000 400000 0 0 0 0\n"
    "name 0 {\"label\":\"\",\"frames\":[[\"forward\",\"/x/model.py\",7],[\"main\",\"/x/train.py\",9]]}\n"
    "name 1 {\"label\":\"backward of AddmmBackward0\",\"frames\":[]}\n"
    "! 0 100000 2000000 0 0 0 0\n";  // 32 MiB with 1 MiB free

std::optional<MemoryHistory> read(const std::string& text) {
  std::istringstream lines(text);
  return parse_rehearsed_history(lines, 0);
}

TEST(RehearsedHistory, IsReportedLikeAnyOther) {
  const auto history = read(kRun);
  ASSERT_TRUE(history);
  EXPECT_EQ(history->passed_over, 0U);
  EXPECT_EQ(history->devices.size(), 1U);
  const auto found = look_into(*history, uint64_t{24} << 20);
  ASSERT_TRUE(found && found->failure);
  EXPECT_EQ(found->failure->bytes, uint64_t{32} << 20);
  EXPECT_EQ(found->failure->where, "model.py:7 forward");
  EXPECT_EQ(found->failure->caller, "train.py:9 main");
  EXPECT_EQ(found->holdings.reserved, uint64_t{20} << 20);
  EXPECT_EQ(found->holdings.in_use, uint64_t{8} << 20);
  EXPECT_EQ(found->holdings.free, uint64_t{1} << 20);
  EXPECT_EQ(found->holdings.outside(), uint64_t{3} << 20);
  EXPECT_EQ(found->peak_bytes, uint64_t{12} << 20);
  EXPECT_EQ(found->contradictions, 0U);
  const DeviceHistory& device = history->devices.at(0);
  EXPECT_THAT(device.step_events, testing::ElementsAre(0, 3));
  EXPECT_EQ(holders_before(*history, 0, 3).back().where, "backward of AddmmBackward0");
}

TEST(RehearsedHistory, MappedPagesThatGoInPartLeaveTheRest) {
  const auto history = read(
      "spillway-history 1\n"
      "m 0 10000000 600000 5 0 0 0\n"
      "u 0 10200000 200000 5 0 0 0\n"
      "a 0 10400000 200 5 0 0 0\n");
  ASSERT_TRUE(history);
  const DeviceHistory& device = history->devices.at(0);
  ASSERT_EQ(device.segments.size(), 2U);
  EXPECT_EQ(device.segments[0].size, uint64_t{2} << 20);
  EXPECT_EQ(device.segments[1].address, 0x10400000U);
  EXPECT_TRUE(device.segments[1].expandable);
  EXPECT_EQ(device.segments[1].blocks.size(), 1U);
  EXPECT_EQ(moment_at(device, 1).reserved, uint64_t{6} << 20) << "before it was unmapped";
}

TEST(RehearsedHistory, WhatAKilledProcessLeftIsReadAsFarAsItGoes) {
  const std::string whole = kRun;
  const auto half_a_line = read(whole.substr(0, whole.size() - 5));
  ASSERT_TRUE(half_a_line);
  EXPECT_EQ(half_a_line->devices.at(0).events.back().action, Action::kFreeCompleted);
  EXPECT_FALSE(read("")) << "no file of this kind";
  EXPECT_FALSE(read("spillway-stream 1\n0 a 512 0 0\n"));
  const auto cut = read("spillway-history 1\na 0 200 200 0 0 0 0\ncut\n");
  EXPECT_THAT(cut->incomplete, testing::HasSubstr("more events"));
}

TEST(RehearsedHistory, ADamagedFileIsCountedAndDoesNotCrash) {
  std::mt19937 random(7);
  uint64_t passed_over = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = kRun;
    for (int i = 0; i < 1 + round % 8; ++i)
      text[19 + random() % (text.size() - 19)] =
          static_cast<char>(random() % 4 == 0 ? random() : '0' + random() % 10);
    const auto history = read(text);
    ASSERT_TRUE(history);
    passed_over += history->passed_over;
    look_into(*history, uint64_t{24} << 20);
  }
  EXPECT_GT(passed_over, 0U);
}

}  // namespace
}  // namespace spillway::tools
