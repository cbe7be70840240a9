// What a run says, in its files; and the text of its progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/trainer/scratch_folder.h"
#include "trainer/app/log.h"
#include "trainer/app/recorder.h"

namespace spillway::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(ScratchFolder::read(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

class Log : public testing::Test {
 protected:
  std::vector<std::string> lines() const { return lines_of(scratch_.file("train.log")); }
  std::vector<std::string> data() const { return lines_of(scratch_.file("train.jsonl")); }
  std::string folder() const { return scratch_.file(""); }

  const ScratchFolder scratch_;
};

TEST_F(Log, EachLineHasItsTimeAndLevel) {
  RunLog log("info", true);
  log.open(folder(), false, false);
  log.say(LogLevel::kDebug, "not said");
  log.say(LogLevel::kInfo, "one\ntwo {} %s\n");
  log.say(LogLevel::kWarning, "three");
  log.end("failed", 1);
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} ";
  EXPECT_THAT(lines(),
              ElementsAre(MatchesRegex(time + "info: one"), MatchesRegex(time + "info: two \\{\\} %s"),
                          MatchesRegex(time + "warning: three"), MatchesRegex(time + "error: failed")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("train.jsonl")));
}

TEST_F(Log, TheLeastLevelIsOfLinesAndNotOfData) {
  RunLog log("error", true);
  log.open(folder(), false, true);
  log.say(LogLevel::kWarning, "not said");
  log.say(LogLevel::kError, "said");
  log.record({{"event", "step"}});
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_EQ(data().size(), 1u);
}

TEST_F(Log, OnTheConsoleLinesAreAsTheyAre) {
  testing::internal::CaptureStdout();
  {
    RunLog log("warning", false);
    log.say(LogLevel::kInfo, "not said");
    log.step("step 1", {});
    log.say(LogLevel::kWarning, "a\nb");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\nb\n");
}

TEST_F(Log, ARunBeginsItsFilesAnewAndAResumedOneGoesOn) {
  const auto run = [&](bool resumed) {
    RunLog log("info", true);
    log.open(folder(), resumed, true);
    log.say(LogLevel::kInfo, "line");
    log.record({{"event", "step"}});
  };
  run(false), run(true);
  EXPECT_EQ(lines().size(), 2u);
  EXPECT_EQ(data().size(), 2u);
  ScratchFolder::write(scratch_.file("train.1.log"), "of the run before\n");
  run(false);
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_EQ(data().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("train.1.log")));
}

// A killed process leaves half of its last object.
TEST_F(Log, AResumedRunTakesATornObjectAway) {
  ScratchFolder::write(scratch_.file("train.jsonl"), "{\"step\":0}\n{\"st");
  {
    RunLog log("info", true);
    log.open(folder(), true, true);
    log.record({{"event", "step"}});
  }
  ASSERT_EQ(data().size(), 2u);
  for (const std::string& line : data()) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  ScratchFolder::write(scratch_.file("train.jsonl"), "{\"st");
  RunLog(std::string("info"), true).open(folder(), true, true);
  EXPECT_EQ(ScratchFolder::read(scratch_.file("train.jsonl")), "");
}

TEST_F(Log, AResumedRunHasEachStepOnce) {
  std::string error;
  const Plan small{.micro_batch = 1}, large{.micro_batch = 4};
  {
    RunFiles files;
    ASSERT_TRUE(files.open(folder(), false, &error)) << error;
    for (uint64_t step = 0; step < 5; ++step) {
      files.loss(step, 1.5, 2), files.plan(step, step < 2 ? small : large);
      if (step % 2 == 1) files.evaluation(step + 1, 1);
    }
  }
  const std::string losses = scratch_.file("losses.txt"), schedule = scratch_.file("plan_schedule.toml");
  const std::vector<std::string> all = lines_of(losses);
  ScratchFolder::write(losses, ScratchFolder::read(losses) + "5 0x1.8");  // and then it was killed
  for (const uint64_t step : {4, 2, 1, 0}) {
    RunFiles files;
    ASSERT_TRUE(files.open(folder(), true, &error) && files.go_on_from(step, &error)) << error;
    size_t steps = 0;
    for (const std::string& line : lines_of(losses)) steps += line.starts_with("evaluation") ? 0 : 1;
    EXPECT_EQ(steps, step);
    EXPECT_EQ(lines_of(losses).size(), step + step / 2) << "with the evaluation after these steps";
    EXPECT_EQ(ScratchFolder::read(schedule).find("step = 2") != std::string::npos, step > 2);
    EXPECT_EQ(ScratchFolder::read(schedule).find("step = 0") != std::string::npos, step > 0);
  }
  RunFiles files;
  ASSERT_TRUE(files.open(folder(), true, &error) && files.go_on_from(0, &error));
  files.loss(0, 1.5, 2);
  EXPECT_THAT(lines_of(losses), ElementsAre(all.front()));
}

TEST_F(Log, TheFilesAreBounded) {
  RunLog log("info", true);
  log.open(folder(), false, false);
  const std::string line(1 << 16, 'x');
  for (int i = 0; i < 600; ++i) log.say(LogLevel::kInfo, line);
  uint64_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(scratch_.file(""))) {
    ++files;
    EXPECT_LE(file.file_size(), 8u << 20) << file.path();
  }
  EXPECT_EQ(files, 3u);
}

TEST_F(Log, AFileThatCannotBeWrittenIsNamedOnceAndTheRestGoesOn) {
  std::filesystem::create_directory(scratch_.file("train.log"));
  ScratchFolder::write(scratch_.file("train.log") + "/x", "");
  std::filesystem::create_symlink("/dev/full", scratch_.file("train.jsonl"));
  testing::internal::CaptureStderr();
  RunLog log("info", true);
  log.open(folder(), true, true);
  for (int i = 0; i < 3; ++i) log.say(LogLevel::kInfo, "line"), log.record({{"event", "step"}});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              HasSubstr("train.log for writing: Is a directory: the training goes on without this log\n"));
  EXPECT_THAT(said,
              HasSubstr("train.jsonl: No space left on device: the training goes on without this log\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2);
}

TEST_F(Log, CurvesThatCannotBeWrittenAreLeftOut) {
  EventFile curves;
  std::string error;
  EXPECT_TRUE(curves.write(0, {{"loss", 1}}, &error)) << "not asked for";
  EXPECT_FALSE(curves.open("/proc/nowhere", false, &error));
  EXPECT_THAT(error, MatchesRegex("/proc/nowhere/events\\.out\\.tfevents\\..*: No such file or directory"));
  EXPECT_TRUE(curves.write(0, {{"loss", 1}}, &error)) << "said once";
}

TEST(ProgressText, HasWhatIsNewestFirstAndKeepsToTheWidth) {
  const Progress progress{.done = 7,
                          .steps = 90,
                          .loss = 2.5,
                          .tokens_per_second = 1234.4,
                          .seconds_left = 3723,
                          .memory = "MiB 3 peak 6 of 6",
                          .plan = "micro_batch=8"};
  const std::string whole =
      "step 7/90  loss 2.5000  1234 tokens/s  1:02:03 left  MiB 3 peak 6 of 6  micro_batch=8";
  EXPECT_EQ(progress_text(progress, 500), whole);
  EXPECT_EQ(progress_text(progress, 30), whole.substr(0, 30));
  EXPECT_EQ(progress_text(progress, 0), "");
  Progress strange = progress;
  strange.seconds_left = NAN;
  strange.loss = INFINITY;
  EXPECT_THAT(progress_text(strange, 500), HasSubstr("loss inf"));
  strange.seconds_left = 3 * 86400.0;
  EXPECT_THAT(progress_text(strange, 500), HasSubstr("3 days left"));
}

class Recording : public Log {
 protected:
  Recording() {
    config_.run.out = folder();
    config_.run.log_json = true;
    config_.train.steps = 3;
  }
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> all;
    for (const std::string& line : data()) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  static DoneStep step(uint64_t number) {
    spillway_memory memory{};
    memory.live = 1, memory.peak_live = 2, memory.reserved = 3, memory.peak_reserved = 4, memory.limit = 5;
    return {.number = number,
            .loss = 1.5,
            .gradient_norm = 0.25,
            .learning_rate = 1e-3,
            .seconds = 0.5,
            .tokens = 2048,
            .plan = {.micro_batch = 4},
            .memory = {memory},
            .memory_of_run = {memory}};
  }

  Config config_;
  RunLog log_{"info", true};
  RunHistory history_;
};

TEST_F(Recording, AStepIsAnObjectWithNamedFields) {
  Recorder recorder(config_, &log_, &history_);
  std::string error;
  ASSERT_TRUE(recorder.open(false, &error)) << error;
  history_.begin(config_.shape(), {}, {});
  recorder.began({}, "a run");
  DoneStep odd = step(0);
  odd.loss = NAN;
  recorder.done(odd);
  recorder.done(step(1));
  ASSERT_EQ(events().size(), 3u);
  EXPECT_TRUE(events()[1]["loss"].is_null());
  nlohmann::json event = events()[2];
  EXPECT_GT(event["time"], 1.7e9);
  event.erase("time");
  EXPECT_EQ(event, nlohmann::json::parse(R"({"event": "step", "step": 1, "loss": 1.5, "gradient_norm": 0.25,
      "learning_rate": 1e-3, "seconds": 0.5, "tokens_per_second": 4096.0, "plan": "micro_batch=4 evaluation_batch=1",
      "devices": [{"device": 0, "live_bytes": 1, "live_peak_bytes": 2, "reserved_bytes": 3,
                   "reserved_peak_bytes": 4, "limit_bytes": 5}]})"));
}

TEST_F(Recording, ARecoveryIsToldOnceWithItsReason) {
  Recorder recorder(config_, &log_, &history_);
  std::string error;
  ASSERT_TRUE(recorder.open(false, &error)) << error;
  history_.begin(config_.shape(), {}, {});
  RecoveryRecord record;
  record.step = 2, record.phase = "forward", record.action = "recompute", record.incident = 7;
  record.reason = "\"quoted\"\n\xff\x1b";
  recorder.recovered({record});
  recorder.recovered({record});
  recorder.moved(3, "grow_back", {});
  ASSERT_EQ(events().size(), 2u);
  EXPECT_EQ(events()[0]["incident"], 7);
  EXPECT_EQ(events()[0]["phase"], "forward");
  EXPECT_EQ(events()[0]["action"], "recompute");
  EXPECT_EQ(events()[0]["reason"], "\"quoted\"\n\xef\xbf\xbd\x1b");
  EXPECT_EQ(events()[1]["action"], "grow_back");
  EXPECT_EQ(history_.moves().size(), 2u);
  EXPECT_THAT(
      lines(),
      ElementsAre(HasSubstr("warning: step 2: out of memory in forward (incident 7): recompute, now")));
}

}  // namespace
}  // namespace spillway::trainer
