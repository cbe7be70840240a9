// Whole runs on the CPU: they learn, repeat, stop and resume to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/scratch_folder.h"
#include "trainer/app/trainer.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;

class WholeRun : public testing::Test {
 protected:
  Config config(const std::string& out, const std::vector<std::string>& overrides = {}) {
    std::string error;
    std::vector<std::string> all{"run.out=\"" + scratch_.file(out) + "\"", "data.corpus=\"" + corpus_ + "\""};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const auto read = parse_config(R"(
[model]
layers = 2
width = 32
heads = 2
context = 16
dropout = 0.1
[train]
steps = 12
batch = 4
learning_rate = 1e-2
warmup = 2
[evaluation]
windows = 16
[run]
device = "cpu"
threads = 1
)",
                                   all, &error);
    EXPECT_TRUE(read) << error;
    return read.value_or(Config{});
  }
  std::string losses(const std::string& out) {
    return ScratchFolder::read(scratch_.file(out) + "/losses.txt");
  }

  const ScratchFolder scratch_;
  const std::string corpus_ = scratch_.corpus();
  const TrainOptions quiet_{.resume = "", .stop = nullptr, .quiet = true};
};

TEST_F(WholeRun, LearnsAndRepeatsToTheBit) {
  const Results first = train(config("a", {"train.steps=60"}), quiet_);
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  EXPECT_LT(*first.evaluation_loss, first.unigram_entropy);
  EXPECT_EQ(first.tokens, 60u * 4 * 16);
  const Results second = train(config("b", {"train.steps=60"}), quiet_);
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_NE(train(config("c", {"train.steps=60", "data.seed=2"}), quiet_).weights_hash, first.weights_hash);
}

TEST_F(WholeRun, StopsOnRequestAndResumesToTheBit) {
  const Results whole = train(config("whole"), quiet_);
  std::atomic<bool> stop{true};  // ends after one step
  const Results stopped =
      train(config("cut", {"plan.recompute=\"all\""}), {.resume = "", .stop = &stop, .quiet = true});
  EXPECT_EQ(stopped.exit_code, kExitInterrupted);
  EXPECT_EQ(stopped.steps, 1u);
  const Results resumed =
      train(config("cut"), {.resume = scratch_.file("cut"), .stop = nullptr, .quiet = true});
  EXPECT_EQ(resumed.exit_code, kExitDone) << resumed.verdict;
  EXPECT_EQ(resumed.steps, 11u);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(losses("cut"), losses("whole"));
  EXPECT_EQ(resumed.plan.recompute.size(), 2u) << "the plan is the checkpoint's";
}

TEST_F(WholeRun, TheScheduleThatWasUsedCanBeFollowed) {
  const std::string schedule =
      "plan.schedule=[{step=2, micro_batch=2}, {step=5, optimizer=\"host\", recompute=1}, {step=7, "
      "micro_batch=1}]";
  const Results first = train(config("a", {schedule}), quiet_);
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  const std::string written = ScratchFolder::read(scratch_.file("a/plan_schedule.toml"));
  const Config replay = config("b");
  std::string error;
  auto followed =
      parse_config("[model]\nlayers=2\nwidth=32\nheads=2\n[data]\ncorpus=\"x\"\n" + written, {}, &error);
  ASSERT_TRUE(followed) << error << written;
  Config second = replay;
  second.schedule = followed->schedule;
  EXPECT_EQ(train(second, quiet_).weights_hash, first.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_NE(train(replay, quiet_).weights_hash, first.weights_hash);
}

TEST_F(WholeRun, ADamagedOrForeignCheckpointIsRefused) {
  std::atomic<bool> stop{true};
  const Config small = config("a");
  ASSERT_EQ(train(small, {.resume = "", .stop = &stop, .quiet = true}).exit_code, kExitInterrupted);
  const std::string path = scratch_.file("a/checkpoint.safetensors"), sound = ScratchFolder::read(path);
  const TrainOptions resume{.resume = scratch_.file("a"), .stop = nullptr, .quiet = true};
  const auto verdict = [&](const Config& with) {
    const Results results = train(with, resume);
    EXPECT_EQ(results.exit_code, kExitUsage);
    return results.verdict;
  };
  EXPECT_THAT(verdict(config("a", {"model.width=64"})),
              HasSubstr("width=32 heads=2 context=16, not layers=2 width=64"));
  ScratchFolder::write(path, sound.substr(0, sound.size() - 1));
  EXPECT_THAT(verdict(small), HasSubstr("data_offsets leave the file"));
  std::string renamed = sound;
  renamed.replace(renamed.find("adamw.first.norm.bias"), 5, "adamx");
  ScratchFolder::write(path, renamed);
  EXPECT_THAT(verdict(small), HasSubstr("tensor 'adamw.first.norm.bias' is missing"));
  std::filesystem::remove(path);
  EXPECT_THAT(verdict(small), HasSubstr("No such file"));
}

TEST_F(WholeRun, SaysWhatKeepsItFromStarting) {
  const Results results = train(config("a", {"plan.devices=[0,1]"}), quiet_);
  EXPECT_EQ(results.exit_code, kExitUsage);
  EXPECT_THAT(results.verdict, HasSubstr("layer 1 on device 1, but there are only 1"));
  Config lost = config("b");
  lost.run.out = "/proc/nowhere";
  EXPECT_THAT(train(lost, quiet_).verdict, HasSubstr("set run.out to a writable folder"));
}

TEST_F(WholeRun, ResultsReadAsTableAndJson) {
  const Results results = train(config("a"), quiet_);
  EXPECT_THAT(to_table(results), HasSubstr("bit_exact"));
  EXPECT_THAT(to_json(results), HasSubstr("\"exit_code\": 0"));
}

}  // namespace
}  // namespace spillway::trainer
