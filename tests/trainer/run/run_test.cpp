// Whole runs on the CPU: they learn, repeat, stop and resume to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/trainer/data/pair_files.h"
#include "tests/trainer/data/token_files.h"
#include "tests/trainer/run/program.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/app/trainer.h"
#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  // A run that ends after its first step, with a checkpoint.
  void interrupt(const std::string& out, const std::vector<std::string>& overrides = {}) {
    Stop stop{.signal = SIGINT};
    ASSERT_EQ(train(config(out, overrides), {.resume = "", .stop = &stop, .quiet = true}).exit_code,
              exit_code_of_signal(SIGINT));
  }
  // The log of a run in `out` that goes on from the checkpoint in `from` to its end, and what it held.
  std::pair<std::string, Guarantee> resume(const std::string& from, const std::string& out,
                                           const std::vector<std::string>& overrides) {
    const Results results =
        train(config(out, overrides), {.resume = scratch_.file(from), .stop = nullptr, .quiet = true});
    EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
    return {ScratchFolder::read(scratch_.file(out) + "/train.log"), results.guarantee_held};
  }

  const ScratchFolder scratch_;
  const std::string corpus_ = scratch_.corpus();
  const TrainOptions quiet_{.resume = "", .stop = nullptr, .quiet = true};
};

TEST_F(WholeRun, LearnsAndRepeatsToTheBit) {
  const Results first = train(config("a", {"train.steps=60"}), quiet_);
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  EXPECT_LT(first.evaluation_loss.value_or(INFINITY), first.unigram_entropy);
  EXPECT_EQ(first.tokens, 60u * 4 * 16);
  const Results second = train(config("b", {"train.steps=60"}), quiet_);
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_NE(train(config("c", {"train.steps=60", "data.seed=2"}), quiet_).weights_hash, first.weights_hash);
}

TEST_F(WholeRun, LoaderThreadsChangeNoBit) {
  const Results without = train(config("a", {"data.workers=0"}), quiet_);
  ASSERT_EQ(without.exit_code, kExitDone) << without.verdict;
  const Results with = train(config("b", {"data.workers=3", "data.ahead=5"}), quiet_);
  EXPECT_EQ(with.weights_hash, without.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
}

TEST_F(WholeRun, PairsAreCountedByTheirTargetsWithoutPadding) {
  WrittenPairs written = counting_pairs(80);
  ScratchFolder::write(scratch_.file("pairs"), written.bytes());
  const std::vector<std::string> settings{"data.corpus=\"" + scratch_.file("pairs") + "\"", "model.family=t5",
                                          "model.vocabulary=384", "train.steps=36", "evaluation.windows=8"};
  const auto run = [&](const char* name) { return train(config(name, settings), quiet_); };
  const Results first = run("a");
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  uint64_t of_training = 0;
  for (size_t pair = 0; pair < 72; ++pair) of_training += pair % 8 + 1;
  EXPECT_EQ(first.tokens, 2 * of_training) << "two passes of 18 batches";
  const double of_a_byte = double(written.targets.tokens.size()) / 4000 / std::log(2.0);
  EXPECT_NEAR(first.bits_per_byte.value_or(NAN), first.evaluation_loss.value_or(NAN) * of_a_byte, 1e-9);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("a/train.log")),
              HasSubstr("80 pairs, sources of " + std::to_string(written.sources.tokens.size()) +
                        " tokens (at most 12), targets of 360 tokens (at most 8), a vocabulary of 384, "));
  EXPECT_EQ(run("b").weights_hash, first.weights_hash);
  const size_t cut = written.metadata.rfind("\"0\"");
  written.metadata.replace(cut, 3, "\"1\"");
  ScratchFolder::write(scratch_.file("pairs"), written.bytes());
  EXPECT_FALSE(run("c").bits_per_byte) << "some of the text is in no token";
}

TEST_F(WholeRun, BytesAsTokensOfAFileAreTheText) {
  const Results of_text = train(config("a"), quiet_);
  ASSERT_EQ(of_text.exit_code, kExitDone) << of_text.verdict;
  const std::string text = ScratchFolder::read(corpus_);
  const WrittenTokens written{
      .metadata = R"("format":"spillway-tokens 1","vocabulary":"256","text_bytes":")" +
                  std::to_string(2 * text.size()) + '"',
      .tokens = tokens_of(text)};
  ScratchFolder::write(scratch_.file("tokens"), written.bytes());
  const Results of_tokens = train(config("b", {"data.corpus=\"" + scratch_.file("tokens") + "\""}), quiet_);
  ASSERT_EQ(of_tokens.exit_code, kExitDone) << of_tokens.verdict;
  EXPECT_EQ(of_tokens.weights_hash, of_text.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(of_tokens.unigram_entropy, of_text.unigram_entropy);
  const double bits = of_text.evaluation_loss.value_or(NAN) / std::log(2.0);
  EXPECT_NEAR(of_text.bits_per_byte.value_or(NAN), bits, 1e-9);
  EXPECT_NEAR(of_tokens.bits_per_byte.value_or(NAN), bits / 2, 1e-9) << "a token stands for two bytes";
  EXPECT_THAT(to_table(of_tokens), HasSubstr("\nbits per byte     "));
  ScratchFolder::write(scratch_.file("tokens"), written.bytes() + "x");
  Config broken = config("c");
  broken.data.corpus = scratch_.file("tokens");
  EXPECT_EQ(train(broken, quiet_).exit_code, kExitUsage);
  broken.data.corpus = corpus_, broken.model.vocabulary = 255;
  EXPECT_THAT(train(broken, quiet_).verdict, HasSubstr("'model.vocabulary' (255)"));
}

TEST_F(WholeRun, WhatItSavesIsWhereTheNextOneBegins) {
  const std::string saved = scratch_.file("saved");
  const Results first = train(config("a", {"run.save=\"" + saved + "\""}), quiet_);
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  Config next = config("b", {"train.learning_rate=0", "train.minimum_learning_rate=0", "train.steps=1"});
  next.pretrained = saved;
  EXPECT_EQ(train(next, quiet_).weights_hash, first.weights_hash);
  next.model.layers = 1;
  const Results other = train(next, quiet_);
  EXPECT_EQ(other.exit_code, kExitUsage);
  EXPECT_THAT(other.verdict, HasSubstr("tensor 'transformer.h.1."));
}

// Of its table of positions it learns the first ones, and saves all.
TEST_F(WholeRun, AGpt2OfAShorterContextKeepsItsPositions) {
  const std::string saved = scratch_.file("saved"), again = scratch_.file("again");
  ASSERT_EQ(train(config("a", {"run.save=\"" + saved + "\""}), quiet_).exit_code, kExitDone);
  Config next = config(
      "b", {"run.save=\"" + again + "\"", "train.weight_decay=0", "model.context=8", "model.positions=16"});
  next.pretrained = saved;
  const Results results = train(next, quiet_);
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  const auto positions = [](const std::string& folder) {
    std::string error;
    const auto file = safetensors::File::open(folder + "/model.safetensors", &error);
    EXPECT_TRUE(file) << error;
    const safetensors::StoredTensor& tensor = file->tensors().at("transformer.wpe.weight");
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{16, 32}));
    const std::string bytes(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    return std::pair(bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2));
  };
  EXPECT_NE(positions(saved).first, positions(again).first);
  EXPECT_EQ(positions(saved).second, positions(again).second);
  EXPECT_THAT(ScratchFolder::read(again + "/config.json"), HasSubstr("\"n_positions\": 16"));
}

// A training's result is not lost because a folder cannot be made.
TEST_F(WholeRun, WeightsThatCannotBeSavedAreInACheckpoint) {
  ScratchFolder::write(scratch_.file("file"), "");
  const Results results = train(config("a", {"run.save=\"" + scratch_.file("file") + "/in\""}), quiet_);
  EXPECT_EQ(results.exit_code, kExitError);
  EXPECT_THAT(results.verdict, HasSubstr("could not be saved"));
  EXPECT_EQ(results.checkpoint, scratch_.file("a/checkpoint.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("a/checkpoint.safetensors")));
}

TEST_F(WholeRun, StopsOnRequestAndResumesToTheBit) {
  const Results whole = train(config("whole"), quiet_);
  Stop stop{.signal = SIGINT};  // ends after one step
  const Results stopped =
      train(config("cut", {"plan.recompute=\"all\""}), {.resume = "", .stop = &stop, .quiet = true});
  EXPECT_EQ(stopped.exit_code, exit_code_of_signal(SIGINT));
  EXPECT_EQ(stopped.steps, 1u);
  const Results resumed =
      train(config("cut"), {.resume = scratch_.file("cut"), .stop = nullptr, .quiet = true});
  EXPECT_EQ(resumed.exit_code, kExitDone) << resumed.verdict;
  EXPECT_EQ(resumed.steps, 11u);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(losses("cut"), losses("whole"));
  EXPECT_EQ(resumed.plan.recompute.size(), 0u) << "the plan is the configuration's, which has changed";
}

TEST_F(WholeRun, OtherDataThanThoseOfTheCheckpointAreAWarning) {
  interrupt("a");
  const auto resumed = [&](const std::string& out, const std::vector<std::string>& overrides) {
    return resume("a", out, overrides).first;
  };
  EXPECT_THAT(resumed("same", {}), testing::Not(HasSubstr("other data")));
  EXPECT_THAT(resumed("seed", {"data.seed=7"}), HasSubstr("other data (data.seed 1, "));
  EXPECT_THAT(resumed("share", {"data.validation=0.2"}), HasSubstr("other data"));
}

// The guarantee is of a run with one configuration.
TEST_F(WholeRun, OtherSettingsThanThoseOfTheCheckpointAreNamed) {
  interrupt("a");
  const auto resumed = [&](const std::string& out, const std::vector<std::string>& overrides) {
    return resume("a", out, overrides);
  };
  const auto same = resumed("same", {"train.loss_scale=2", "run.checkpoint_every=5"});
  EXPECT_THAT(same.first, Not(HasSubstr("other settings")));
  EXPECT_EQ(same.second, Guarantee::kBitExact);
  const auto other = resumed("other", {"train.batch=2", "model.dropout=0.4", "train.learning_rate=1e-3"});
  EXPECT_THAT(other.first,
              HasSubstr("goes on with other settings than those of the checkpoint: model.dropout was 0.1 and "
                        "is 0.4, train.batch was 4 and is 2, train.learning_rate was 0.01 and is 0.001"));
  EXPECT_EQ(other.second, Guarantee::kStatisticsChange);
  EXPECT_EQ(resumed("rows", {"data.seed=7"}).second, Guarantee::kStatisticsChange);
  EXPECT_EQ(resumed("seed", {"train.seed=7"}).second, Guarantee::kBitExact)
      << "nothing is drawn from it again";
}

TEST_F(WholeRun, AnotherSeedOfRoundingsThanThatOfTheCheckpointIsNamed) {
  const std::string bf16 = "train.precision=\"bf16\"";
  interrupt("a", {bf16});
  EXPECT_EQ(resume("a", "same", {bf16}).second, Guarantee::kBitExact);
  const auto other = resume("a", "other", {bf16, "train.seed=9223372036854775807"});
  EXPECT_THAT(other.first, HasSubstr("train.seed was 1 and is 9223372036854775807"));
  EXPECT_EQ(other.second, Guarantee::kStatisticsChange);
}

// Where a run was killed before its first checkpoint, --resume would go on from that of another run.
TEST_F(WholeRun, TheCheckpointOfAnEarlierRunIsSetAside) {
  interrupt("a");
  const std::string path = scratch_.file("a/checkpoint.safetensors"), first = ScratchFolder::read(path);
  EXPECT_EQ(train(config("a", {"train.learning_rate=1e-3"}), quiet_).exit_code, kExitDone);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(ScratchFolder::read(path + ".of-an-earlier-run"), first);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("a/train.log")),
              HasSubstr("the checkpoint of an earlier run is now " + path + ".of-an-earlier-run"));
  const Results resumed = train(config("a"), {.resume = scratch_.file("a"), .stop = nullptr, .quiet = true});
  EXPECT_EQ(resumed.exit_code, kExitUsage);
  EXPECT_THAT(resumed.verdict, HasSubstr("the run there has saved no checkpoint; " + path +
                                         ".of-an-earlier-run is that of an earlier run: to go on from it, "
                                         "rename it to " +
                                         path));
  interrupt("a");
  const std::string second = ScratchFolder::read(path);
  EXPECT_EQ(train(config("a", {"train.learning_rate=2e-3"}), quiet_).exit_code, kExitDone);
  EXPECT_EQ(ScratchFolder::read(path + ".of-an-earlier-run"), first) << "nothing takes its place";
  EXPECT_EQ(ScratchFolder::read(path + ".of-an-earlier-run.2"), second);
  // A run that goes on from elsewhere, and one that does not begin.
  interrupt("b");
  interrupt("c");
  const TrainOptions nowhere{.resume = scratch_.file("nowhere"), .stop = nullptr, .quiet = true};
  EXPECT_EQ(train(config("b"), nowhere).exit_code, kExitUsage);
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("b/checkpoint.safetensors")));
  EXPECT_EQ(train(config("b"), {.resume = scratch_.file("c"), .stop = nullptr, .quiet = true}).steps, 11u);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("b/checkpoint.safetensors")));
}

// With the same command line, wherever the first start began.
TEST_F(WholeRun, AStartThatALauncherRepeatsGoesOnFromItsOwnCheckpoint) {
  const auto started = [&](const std::string& out, const std::string& resume, bool again) {
    TrainOptions options{.resume = resume, .stop = nullptr, .quiet = true};
    options.launch.repeats = true, options.launch.started_again = again;
    return train(config(out), options);
  };
  const Results whole = started("whole", "", false);
  interrupt("a");
  EXPECT_EQ(started("a", "", true).weights_hash, whole.weights_hash);
  EXPECT_EQ(losses("a"), losses("whole"));
  interrupt("b");
  EXPECT_EQ(started("b", scratch_.file("gone-since-the-first-start"), true).weights_hash, whole.weights_hash);
  // At the first start what is in the folder is an earlier run's.
  interrupt("from");
  interrupt("c");
  EXPECT_EQ(started("c", scratch_.file("from"), false).weights_hash, whole.weights_hash);
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("c/checkpoint.safetensors.of-an-earlier-run")));
  interrupt("d");
  EXPECT_EQ(started("d", scratch_.file("d"), false).weights_hash, whole.weights_hash);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("d/checkpoint.safetensors.of-an-earlier-run")));
  // One that does not begin.
  interrupt("e");
  EXPECT_EQ(started("e", scratch_.file("mistyped"), false).exit_code, kExitUsage);
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("e/checkpoint.safetensors")));
}

// What the user has changed is what the run goes on with; moves of the run before are its checkpoint's.
TEST_F(WholeRun, APlanThatWasChangedSinceTheCheckpointIsTheOneThatItGoesOnWith) {
  const auto end_of = [&](const std::string& out, const std::vector<std::string>& overrides) {
    const Results results =
        train(config(out, overrides), {.resume = scratch_.file(out), .stop = nullptr, .quiet = true});
    EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
    return results;
  };
  const char* const kSaid = "goes on with the plan of the configuration";
  interrupt("same");
  EXPECT_EQ(end_of("same", {}).guarantee_held, Guarantee::kBitExact);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("same/train.log")), Not(HasSubstr(kSaid)));
  interrupt("recompute");
  const Results recomputed = end_of("recompute", {"plan.recompute=all"});
  EXPECT_EQ(recomputed.plan.recompute.size(), 2u);
  EXPECT_EQ(recomputed.guarantee_held, Guarantee::kBitExact);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("recompute/train.log")), HasSubstr(kSaid));
  interrupt("halves");
  const Results halves = end_of("halves", {"plan.micro_batch=2"});
  EXPECT_EQ(halves.plan.micro_batch, 2u);
  EXPECT_EQ(halves.guarantee_held, Guarantee::kNumericallyEqual) << "sums of other groups of rows";
}

TEST_F(WholeRun, ACheckpointKeepsWhatItsRunHeld) {
  interrupt("a");
  Stop stop{.signal = SIGINT};
  const std::vector<std::string> halves{"plan.micro_batch=2"};
  EXPECT_EQ(
      train(config("a", halves), {.resume = scratch_.file("a"), .stop = &stop, .quiet = true}).guarantee_held,
      Guarantee::kNumericallyEqual);
  EXPECT_EQ(resume("a", "a", halves).second, Guarantee::kNumericallyEqual)
      << "nothing has changed since the checkpoint, but before it";
}

TEST_F(WholeRun, TheFilesOfAnotherRunAreNotGoneOnIn) {
  ASSERT_EQ(train(config("whole"), quiet_).exit_code, kExitDone);
  ASSERT_EQ(train(config("b", {"train.seed=3"}), quiet_).exit_code, kExitDone);
  interrupt("a");
  const std::string log = resume("a", "b", {}).first;
  const std::string whole = losses("whole");
  EXPECT_EQ(losses("b"), whole.substr(whole.find('\n') + 1)) << "all but the step that a has done";
  EXPECT_TRUE(ScratchFolder::read(scratch_.file("b/plan_schedule.toml"))
                  .starts_with("[[plan.schedule]]\nstep = 1\n"));
  EXPECT_THAT(log, Not(HasSubstr("step 1/12")));
  EXPECT_THAT(log, HasSubstr("step 2/12"));
}

// There is no file before it is known that the run begins, and what was said until then is in it.
TEST_F(WholeRun, WhatIsSaidBeforeTheLogBeginsIsInIt) {
  interrupt("a");
  EXPECT_THAT(resume("a", "a", {"train.learning_rate=1e-3"}).first,
              HasSubstr("warning: goes on with other settings"));
}

TEST_F(WholeRun, TheProgramEndsAfterTheStepOnSigintAndGoesOnToTheBit) {
  const std::string path = scratch_.file("x.toml");
  ScratchFolder::write(
      path, "[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n[data]\ncorpus = \"" + corpus_ +
                "\"\n[train]\nsteps = 1500\nbatch = 2\n[run]\ndevice = \"cpu\"\nthreads = 1\n");
  const auto words = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--config", path, "--quiet", "--set", "run.out=\"" + scratch_.file(out) + "\""});
    return more;
  };
  ASSERT_EQ(exit_code_of(start_program(words("whole", {}))), kExitDone);
  const pid_t process = start_program(words("cut", {"--set", "plan.update=just_in_time"}));
  const auto steps_done = [&] {
    const std::string lines = losses("cut");
    return std::count(lines.begin(), lines.end(), '\n');
  };
  while (steps_done() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(process, SIGINT);
  ASSERT_EQ(exit_code_of(process), exit_code_of_signal(SIGINT));
  const std::string until_then = losses("cut");
  EXPECT_EQ(until_then, losses("whole").substr(0, until_then.size()));
  EXPECT_EQ(exit_code_of(start_program(words("cut", {"--resume", scratch_.file("cut")}))), kExitDone);
  EXPECT_EQ(losses("cut"), losses("whole"));
}

TEST_F(WholeRun, KilledWhileItWritesToADiskItGoesOnFromTheLastCheckpointToTheBit) {
  const std::string path = scratch_.file("x.toml"), disk = scratch_.file("disk");
  ScratchFolder::write(path, "[model]\nlayers = 2\nwidth = 256\nheads = 2\ncontext = 8\n[data]\ncorpus = \"" +
                                 corpus_ +
                                 "\"\n[train]\nsteps = 24\nbatch = 1\n[run]\ndevice = \"cpu\"\nthreads = 1\n"
                                 "checkpoint_every = 4\nnvme = \"" +
                                 disk + "\"\nnvme_least = 0\n");
  const auto words = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--config", path, "--quiet", "--set", "run.out=\"" + scratch_.file(out) + "\""});
    return more;
  };
  const auto lines = [&](const std::string& out) {
    std::istringstream text(losses(out));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  };
  ASSERT_EQ(exit_code_of(start_program(words("whole", {}))), kExitDone);
  const pid_t process =
      start_program(words("cut", {"--set", "plan.optimizer=nvme", "--set", "plan.update=just_in_time"}));
  // What the process has given to be written, in bytes.
  const auto written = [&] {
    const std::string io = ScratchFolder::read("/proc/" + std::to_string(process) + "/io");
    const size_t at = io.find("\nwrite_bytes: ");
    return at == std::string::npos ? 0ul : std::stoul(io.substr(at + 14));
  };
  while (lines("cut").size() < 7) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const uint64_t before = written();  // an update of 13 MiB is under way, or about to begin
  while (written() < before + (1 << 20) && lines("cut").size() < 12)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  ::kill(process, SIGKILL);
  EXPECT_EQ(exit_code_of(process), -1);
  EXPECT_LT(lines("cut").size(), 24u);
  EXPECT_TRUE(std::filesystem::is_empty(disk)) << "nothing is left of the file";
  ASSERT_EQ(exit_code_of(start_program(words("cut", {"--resume", scratch_.file("cut")}))), kExitDone);
  EXPECT_EQ(lines("cut").back(), lines("whole").back());
  EXPECT_EQ(lines("cut")[lines("cut").size() - 2], lines("whole")[lines("whole").size() - 2]);
}

TEST_F(WholeRun, TheProgramRefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(exit_code_of(start_program({})), kExitUsage);
  EXPECT_EQ(exit_code_of(start_program({"--config", scratch_.file("none.toml")})), kExitUsage);
  EXPECT_EQ(exit_code_of(start_program({"--confi", "x"})), kExitUsage);
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
  const auto followed =
      parse_config("[model]\nlayers=2\nwidth=32\nheads=2\n[data]\ncorpus=\"x\"\n" + written, {}, &error);
  ASSERT_TRUE(followed) << error << written;
  Config second = replay;
  second.schedule = followed.value_or(Config()).schedule;
  EXPECT_EQ(train(second, quiet_).weights_hash, first.weights_hash);
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_NE(train(replay, quiet_).weights_hash, first.weights_hash);
}

TEST_F(WholeRun, ADamagedOrForeignCheckpointIsRefused) {
  Stop stop{.signal = SIGINT};
  const Config small = config("a");
  ASSERT_EQ(train(small, {.resume = "", .stop = &stop, .quiet = true}).exit_code,
            exit_code_of_signal(SIGINT));
  const std::string path = scratch_.file("a/checkpoint.safetensors"), sound = ScratchFolder::read(path);
  const TrainOptions resume{.resume = scratch_.file("a"), .stop = nullptr, .quiet = true};
  const auto verdict = [&](const Config& with) {
    const Results results = train(with, resume);
    EXPECT_EQ(results.exit_code, kExitUsage);
    return results.verdict;
  };
  EXPECT_THAT(verdict(config("a", {"model.width=64"})), HasSubstr("tied_head, not gpt2 layers=2 width=64"));
  ScratchFolder::write(path, sound.substr(0, sound.size() - 1));
  EXPECT_THAT(verdict(small), HasSubstr("data_offsets leave the file"));
  std::string renamed = sound;
  renamed.replace(renamed.find("optimizer.first.transformer.ln_f.bias"), 9, "optimizex");
  ScratchFolder::write(path, renamed);
  EXPECT_THAT(verdict(small), HasSubstr("tensor 'optimizer.first.transformer.ln_f.bias' is missing"));
  std::filesystem::remove(path);
  EXPECT_THAT(verdict(small), HasSubstr("No such file"));
}

TEST_F(WholeRun, SaysWhatKeepsItFromStarting) {
  const Results results = train(config("a", {"plan.devices=[0,1]"}), quiet_);
  EXPECT_EQ(results.exit_code, kExitUsage);
  EXPECT_THAT(results.verdict, HasSubstr("layer 1 on device 1, but there are only 1"));
  const Config native = config("n", {"run.device=cuda", "run.allocator=native", "plan.micro_batch=auto"});
  EXPECT_THAT(train(native, quiet_).verdict, HasSubstr("it needs run.allocator = \"spillway\""));
  Config lost = config("b");
  lost.run.out = "/proc/nowhere";
  EXPECT_THAT(train(lost, quiet_).verdict, HasSubstr("set run.out to a writable folder"));
  EXPECT_THAT(train(config("c", {"run.nvme=/proc/nowhere"}), quiet_).verdict,
              HasSubstr("set run.nvme to a writable folder"));
}

// A folder of that name would lie on another disk.
TEST_F(WholeRun, AFolderForTheDiskThatIsNotThereIsNamed) {
  EXPECT_THAT(train(config("a", {"run.nvme=\"" + scratch_.file("not/there") + "\""}), quiet_).verdict,
              HasSubstr("there is no folder '" + scratch_.file("not") + "': is the disk mounted?"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("not")));
  train(config("b", {"train.steps=1", "run.zero=3", "run.nvme=\"" + scratch_.file("made") + "\""}), quiet_);
  const std::string log = ScratchFolder::read(scratch_.file("b/train.log"));
  EXPECT_THAT(log, HasSubstr("made the folder of run.nvme, '" + scratch_.file("made") + "'"));
  EXPECT_THAT(log, HasSubstr("'run.zero' has no effect: there is one process"));
}

TEST_F(WholeRun, SaysThatNothingIsLargeEnoughForTheDisk) {
  const std::string nothing = "no parameter's states are as large as run.nvme_least";
  train(config("small", {"plan.optimizer=nvme", "train.steps=1"}), quiet_);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("small/train.log")), HasSubstr(nothing));
  train(config("large", {"plan.optimizer=nvme", "train.steps=1", "run.nvme_least=0"}), quiet_);
  EXPECT_THAT(ScratchFolder::read(scratch_.file("large/train.log")), Not(HasSubstr(nothing)));
}

TEST_F(WholeRun, LogsAndReportAreOfAllStepsAndChangeNoResult) {
  const Results plain = train(config("plain", {"run.log_level=error"}), quiet_);
  const std::string schedule = "plan.schedule=[{step=5, recompute=1}]";
  const Results results = train(config("a", {"run.log_json=true", "run.log_level=debug", schedule}), quiet_);
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  EXPECT_EQ(results.weights_hash, plain.weights_hash);
  EXPECT_EQ(losses("a"), losses("plain"));
  const auto read = [&](const std::string& name) { return ScratchFolder::read(scratch_.file("a/" + name)); };
  const auto json = nlohmann::json::parse(read("report.json"));
  EXPECT_EQ(json["verdict"], "done");
  ASSERT_EQ(json["points"].size(), 12u);
  EXPECT_DOUBLE_EQ(json["points"][11]["loss"], results.last_loss);
  EXPECT_EQ(json["points"][4]["plan"], 0);
  EXPECT_EQ(json["points"][5]["plan"], 1);
  EXPECT_EQ(json["moves"][0]["action"], "schedule");
  EXPECT_EQ(json["evaluations"][0]["step"], 12);
  EXPECT_EQ(json["rates"]["from"], "not measured, because there is no card");
  std::map<std::string, int> events;
  std::istringstream lines(read("train.jsonl"));
  for (std::string line; std::getline(lines, line);) ++events[nlohmann::json::parse(line)["event"]];
  EXPECT_EQ(events, (std::map<std::string, int>{
                        {"begin", 1}, {"step", 12}, {"plan", 1}, {"evaluation", 1}, {"end", 1}}));
  EXPECT_THAT(read("train.log"), HasSubstr(" info: step 12/12  loss "));
  EXPECT_EQ(ScratchFolder::read(scratch_.file("plain/train.log")), "");
}

TEST_F(WholeRun, AnInterruptedRunLeavesItsReportAndLogsGoOnWhenItIsResumed) {
  Stop stop{.signal = SIGINT};
  const Results stopped = train(config("a"), {.resume = "", .stop = &stop, .quiet = true});
  EXPECT_THAT(ScratchFolder::read(stopped.report),
              testing::StartsWith("spillway-train: interrupted after step 0\n"));
  const Results resumed = train(config("a"), {.resume = scratch_.file("a"), .stop = nullptr, .quiet = true});
  EXPECT_THAT(ScratchFolder::read(resumed.report), HasSubstr("steps  1 to 11\n"));
  const std::string log = ScratchFolder::read(scratch_.file("a/train.log"));
  EXPECT_THAT(log, HasSubstr("info: step 1/12 "));
  EXPECT_THAT(log, HasSubstr("info: step 12/12 "));
  EXPECT_THAT(log, HasSubstr("error: interrupted after step 0\n"));
}

// What cannot be written costs the training nothing.
TEST_F(WholeRun, GoesOnWithoutItsLogAndItsReport) {
  std::filesystem::create_directories(scratch_.file("a/train.log/x"));
  std::filesystem::create_directories(scratch_.file("a/report.svg/x"));
  const Results results = train(config("a"), quiet_);
  EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
  EXPECT_EQ(results.report, "");
  EXPECT_EQ(losses("a"), (train(config("b"), quiet_), losses("b")));
}

TEST_F(WholeRun, ResultsReadAsTableAndJson) {
  const Results results = train(config("a"), quiet_);
  EXPECT_THAT(to_table(results), HasSubstr("bit_exact"));
  EXPECT_THAT(to_table(results), HasSubstr("a/report.txt (report.svg, report.json)\n"));
  EXPECT_THAT(to_json(results), HasSubstr("\"exit_code\": 0"));
}

TEST_F(WholeRun, TheTableSaysWhichSideOfTheEntropyALossIs) {
  Results results;
  results.steps = 1, results.unigram_entropy = 2.5, results.evaluation_loss = 2;
  EXPECT_THAT(to_table(results),
              HasSubstr("2.0000: 0.5000 nat below the unigram entropy of the corpus (2.5"));
  results.evaluation_loss = 4;
  EXPECT_THAT(to_table(results), HasSubstr("4.0000: 1.5000 nat above the unigram entropy"));
  results.evaluation_loss = NAN;
  EXPECT_THAT(to_table(results), Not(HasSubstr("entropy")));
  EXPECT_FALSE(train(config("t5", {"model.family=t5", "train.steps=1"}), quiet_).unigram_entropy);
}

// A training whose loss is lost looks like one that went well, but for its numbers.
TEST_F(WholeRun, ALossThatIsNotFiniteIsSaidOnceAndInTheVerdict) {
  const Results results =
      train(config("a", {"train.optimizer=sgd", "train.clip=0", "train.warmup=0", "train.learning_rate=10",
                         "train.momentum=0.99", "train.steps=60"}),
            quiet_);
  EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
  EXPECT_THAT(results.verdict, testing::MatchesRegex("done; the loss was not finite from step [0-9]+ on"));
  const std::string log = ScratchFolder::read(scratch_.file("a/train.log")),
                    what = ": the loss is not finite (";
  ASSERT_THAT(log, HasSubstr(what));
  EXPECT_EQ(log.find(what), log.rfind(what));
}

TEST_F(WholeRun, TheFileOfACheckpointStandsForItsFolder) {
  interrupt("a");
  const std::string file = scratch_.file("a/checkpoint.safetensors");
  std::filesystem::copy(file, scratch_.file("a/other"));
  const Results other =
      train(config("a"), {.resume = scratch_.file("a/other"), .stop = nullptr, .quiet = true});
  EXPECT_THAT(other.verdict,
              HasSubstr("a/other: is a file; give the folder that has checkpoint.safetensors"));
  EXPECT_EQ(train(config("a"), {.resume = file, .stop = nullptr, .quiet = true}).steps, 11u);
}

TEST_F(WholeRun, OfMixedPrecisionSavesTheMasterWeights) {
  const std::string folder = scratch_.file("saved");
  const Results results =
      train(config("mixed", {"train.precision=bf16-mixed", "run.save=\"" + folder + "\""}), quiet_);
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  std::string error;
  const auto file = safetensors::File::open(folder + "/model.safetensors", &error);
  ASSERT_TRUE(file) << error;
  const safetensors::StoredTensor& tensor = file->tensors().at("transformer.wte.weight");
  EXPECT_EQ(tensor.type, "F32");
  uint64_t finer = 0;  // than bfloat16, which has the upper half of a float's bits
  for (size_t i = 0; i < tensor.data.size(); i += 4) finer += tensor.data[i] != std::byte{0};
  EXPECT_GT(finer, tensor.data.size() / 8);
}

TEST_F(WholeRun, OfMatricesInEightBitsSavesTheirNumbers) {
  const std::string folder = scratch_.file("saved");
  const Results results =
      train(config("int8", {"train.precision=int8", "run.save=\"" + folder + "\""}), quiet_);
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  std::string error;
  const auto file = safetensors::File::open(folder + "/model.safetensors", &error);
  ASSERT_TRUE(file) << error;
  const safetensors::StoredTensor& tensor = file->tensors().at("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(tensor.type, "F32");
  // Of one row: at most 255 numbers, and more than one.
  const auto columns = static_cast<size_t>(tensor.shape[1]);
  std::set<float> numbers;
  for (size_t i = 0; i < columns; ++i) {
    float number = 0;
    std::memcpy(&number, tensor.data.data() + 4 * i, sizeof number);
    numbers.insert(number);
  }
  EXPECT_GT(numbers.size(), 10u);
  Config again = config("again");
  again.pretrained = folder;
  EXPECT_EQ(train(again, quiet_).exit_code, kExitDone);
}

TEST_F(WholeRun, DeterministicHasLibTorchChooseKernelsThatRepeatThemselves) {
  ASSERT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_EQ(train(config("same", {"run.deterministic=true"}), quiet_).exit_code, kExitDone);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace spillway::trainer
