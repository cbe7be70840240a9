// Trials of `spillway doctor` in processes of their own: what hangs or crashes there is a finding.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/tools/support.h"
#include "tools/spillway/doctor/trials.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(Trials, SharedMemoryWithoutRoomForTheLedgerIsNotEnough) {
  EXPECT_THAT(judge_shared_memory(0, 64 << 20).advice, HasSubstr("processes ask each other for no memory"));
  EXPECT_THAT(judge_shared_memory(64 << 20, 64 << 20).advice, HasSubstr("enough for Spillway"));
  EXPECT_EQ(judge_shared_memory(uint64_t{8} << 30, uint64_t{8} << 30).state, TrialState::kOk);
}

std::vector<Trial> found(const char* what) {
  return {{"one", TrialState::kLimited, what, "advice"}, {"two", TrialState::kOk, "", ""}};
}

TEST(Trials, ComeBackAsTheyWereFound) {
  const auto trials = try_for(20, "name", [] {
    std::puts("a library that says something");
    std::fflush(stdout);
    return found("text with \"quotes\" and \xff");
  });
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].name, "one");
  EXPECT_EQ(trials[0].state, TrialState::kLimited);
  EXPECT_THAT(trials[0].found, HasSubstr("text with \"quotes\" and "));
  EXPECT_EQ(trials[0].advice, "advice");
}

TEST(Trials, WhatHangsIsEndedAndSaid) {
  const auto start = Clock::now();
  const auto trials = try_for(0.3, "name", []() -> std::vector<Trial> {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].name, "name");
  EXPECT_EQ(trials[0].state, TrialState::kMissing);
  EXPECT_THAT(trials[0].found, HasSubstr("did not end within 0.3 s"));
}

TEST(Trials, WhatCrashesOrSaysNothingIsSaid) {
  const auto killed = try_for(20, "name", []() -> std::vector<Trial> { ::_exit(::raise(SIGKILL)); });
  EXPECT_THAT(killed.at(0).found, HasSubstr("ended by signal 9"));
  const auto silent = try_for(20, "name", []() -> std::vector<Trial> { ::_exit(0); });
  EXPECT_THAT(silent.at(0).found, HasSubstr("said nothing"));
  const auto other = try_for(20, "name", []() -> std::vector<Trial> {
    std::puts("[{\"name\": 7}, 3]");
    std::fflush(stdout);
    ::_exit(0);
  });
  EXPECT_EQ(other.at(0).state, TrialState::kMissing);
}

TEST(Trials, ACommandEndsWithAllThatItStarted) {
  const ChildAnswer answer = run_for(0.5, {"sh", "-c", "sleep 4321 & echo $!; wait"}, {});
  EXPECT_FALSE(answer.in_time);
  const pid_t left = std::atoi(answer.output.c_str());
  ASSERT_GT(left, 0) << answer.output;
  for (int look = 0; look < 1000 && ::kill(left, 0) == 0; ++look) ::usleep(10000);
  EXPECT_NE(::kill(left, 0), 0);
}

TEST(Trials, MoreOutputThanFitsIsDropped) {
  const ChildAnswer answer = run_for(60, {"sh", "-c", "head -c 1000000 /dev/zero; exit 3"}, {{"LANG", "C"}});
  EXPECT_TRUE(answer.in_time);
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_EQ(answer.output.size(), size_t{64} << 10);
}

}  // namespace
}  // namespace spillway::tools
