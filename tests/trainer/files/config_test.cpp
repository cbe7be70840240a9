// The configuration: what is wrong is said with its line and the nearest key; nothing unknown is ignored.
#include "trainer/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include <random>
#include <string>

#include "tests/trainer/scratch_folder.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;

constexpr const char* kLeast = "[data]\ncorpus = \"x.txt\"\n";

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::string error;
  EXPECT_FALSE(parse_config(text, overrides, &error)) << text;
  return error;
}

Config parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::string error;
  auto config = parse_config(text, overrides, &error);
  EXPECT_TRUE(config) << error;
  return std::move(config).value_or(Config());
}

TEST(Config, NeedsACorpusAndNothingElse) {
  const Config config = parsed(kLeast);
  EXPECT_EQ(config.plan.micro_batch, config.train.batch) << "by default a batch is not split";
  EXPECT_THAT(error_of(""), HasSubstr("'data.corpus' is missing"));
}

TEST(Config, ThePlanIsTheUsersUnlessItIsAutomatic) {
  EXPECT_FALSE(parsed(kLeast).automatic_plan);
  EXPECT_EQ(parsed(kLeast).recovery.grow_back_after, 0u);
  const Config largest =
      parsed(std::string(kLeast) + "[train]\nbatch = 12\n[plan]\nmicro_batch = \"auto\"\n");
  EXPECT_TRUE(largest.automatic_micro_batch);
  EXPECT_EQ(largest.plan.micro_batch, 12u);
  EXPECT_EQ(largest.recovery.grow_back_after, kGrowBackAfter);
  EXPECT_TRUE(parsed(std::string(kLeast) + "[plan]\nautomatic = true\n").automatic_plan);
}

TEST(Config, SpreadsLayersByNameWhenTheDevicesAreKnown) {
  Config config = parsed(std::string(kLeast) + R"([model]
family = "t5"
layers = 4
[plan]
devices = "even"
[[plan.schedule]]
step = 3
micro_batch = 1
[[plan.schedule]]
step = 5
devices = {"1" = [0, 3], "0" = [1, 2]}
[[plan.schedule]]
step = 7
devices = "first"
)");
  config.place_layers({.devices = 2});
  const DeviceMap even{{2, 1}, {3, 1}, {6, 1}, {7, 1}}, table{{0, 1}, {3, 1}, {4, 1}, {7, 1}};
  EXPECT_EQ(config.plan.placement, even);
  EXPECT_EQ(config.schedule.at(3).placement, even) << "as the plan before";
  EXPECT_EQ(config.schedule.at(5).placement, table) << "of both stacks";
  EXPECT_TRUE(config.schedule.at(7).placement.empty());
  EXPECT_THAT(error_of(std::string(kLeast) + "[model]\nfamily = \"t5\"\nlayers = 4\ndecoder_layers = 2\n"
                                             "[plan]\ndevices = {\"0\" = [0]}\n"),
              HasSubstr("encoder and decoder alike, which have 4 and 2 layers: write a list"));
}

TEST(Config, ReadsEverySection) {
  const Config config = parsed(R"(
[model]
layers = 3
width = 96
heads = 3
context = 32
dropout = 0.1
[data]
corpus = "x.txt"
[train]
batch = 6
learning_rate = 1
[run]
device = "cpu"
limit = "1.5GiB"
nvme = "/disk"
nvme_least = "64KiB"
[recovery]
floor = "bit_exact"
grow_back_after = 4
[plan]
micro_batch = 3
recompute = "all"
[[plan.schedule]]
step = 2
micro_batch = 2
[[plan.schedule]]
step = 5
optimizer = "host"
)");
  EXPECT_EQ(config.shape().layers(), 3u);
  EXPECT_EQ(config.train.learning_rate, 1.0) << "an integer is a number";
  EXPECT_EQ(config.run.limit_bytes, 3ull << 29);
  EXPECT_EQ(config.nvme_folder(), "/disk");
  EXPECT_EQ(config.run.nvme_least_bytes, 64u << 10);
  EXPECT_EQ(config.recovery.floor, Guarantee::kBitExact);
  EXPECT_EQ(config.plan.recompute, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_EQ(config.schedule.at(2).micro_batch, 2u);
  EXPECT_EQ(config.schedule.at(5).micro_batch, 2u) << "an entry begins from the one before";
  EXPECT_EQ(config.schedule.at(5).optimizer, Place::kHost);
}

TEST(Config, ErrorsOfAnOverrideNameIt) {
  EXPECT_EQ(error_of(kLeast, {"train.batch=many"}),
            "--set train.batch=many: 'train.batch' must be an integer, not text");
  EXPECT_THAT(error_of(kLeast, {"train.batch=0"}), HasSubstr("--set train.batch=0: 'train.batch' must be"));
  EXPECT_EQ(error_of(kLeast, {"train.batchs=4"}),
            "--set train.batchs=4: unknown key 'train.batchs': did you mean 'train.batch'?");
  EXPECT_THAT(error_of(kLeast, {"train.batch=a'b"}), HasSubstr("neither TOML nor a text without quotes"));
}

struct BadConfig {
  std::string text, says;
};

TEST(Config, ErrorsNameTheLineAndTheNearestKey) {
  const std::string least = kLeast;
  const BadConfig cases[] = {
      {least + "[train]\nbatchs = 4", "line 4: unknown key 'train.batchs': did you mean 'train.batch'?"},
      {least + "[trian]\nbatch = 4", "line 3: unknown key 'trian': did you mean 'train'?"},
      {least + "zzzzzzzzzz = 4", "line 3: unknown key 'data.zzzzzzzzzz'"},
      {least + "[train]\nbatch = 4.0", "line 4: 'train.batch' must be an integer, not a number"},
      {least + "[train]\nlearning_rate = \"fast\"", "'train.learning_rate' must be a number, not text"},
      {least + "[train]\nlearning_rate = nan", "must be between"},
      {least + "[train]\nsteps = 0", "'train.steps' must be between 1"},
      {least + "train = 3", "unknown key 'data.train'"},
      {"train = 3\n" + least, "'train' must be a table, not an integer"},
      {least + "[run]\ndevice = \"tpu\"", "\"cuda\" or \"cpu\", not \"tpu\""},
      {least + "[run]\nlimit = \"2 gigs\"", "'run.limit' must be bytes"},
      {least + "[run]\nlimit = -1", "'run.limit' must be bytes"},
      {least + "[model]\nwidth = 100\nheads = 3", "must be a multiple"},
      {least + "[train]\nprecision = \"fp8\"", "\"fp32\" or \"tf32\" or \"bf16-mixed\""},
      {least + "[train]\noptimizer = \"lion\"", "\"adamw8bit\", not \"lion\""},
      {least + "[train]\nloss_scale = 0.5", "'train.loss_scale' must be between 1"},
      {least + "[plan]\nautomatic = 1", "'plan.automatic' must be"},
      {least + "[plan]\nmicro_batch = \"some\"", "must be a number or \"auto\""},
      {least + "[plan]\nmicro_batch = \"auto\"\n[[plan.schedule]]\nstep = 1", "'plan.micro_batch' chooses"},
      {least + "[[plan.schedule]]\nstep = 1\nmicro_batch = \"auto\"", "micro_batch"},
      {least + "[plan]\nautomatic = true\n[[plan.schedule]]\nstep = 1", "keep one"},
      {least + "[plan]\nschedule = 3", "'plan.schedule' must be a list"},
      {least + "[plan]\nschedule = [3]", "[[plan.schedule]]"},
      {least + "[[plan.schedule]]\nmicro_batch = 1", "needs a 'step'"},
      {least + "[[plan.schedule]]\nstep = 3\n[[plan.schedule]]\nstep = 3", "later than the one before"},
      {least + "[[plan.schedule]]\nstep = 3\nmicro_bath = 1", "did you mean 'plan.schedule.micro_batch'?"},
      {"[data", "line 1"},
  };
  for (const BadConfig& bad : cases) EXPECT_THAT(error_of(bad.text), HasSubstr(bad.says)) << bad.text;
}

TEST(Config, OverridesReplaceKeysAndAreCheckedToo) {
  const Config config =
      parsed(kLeast, {"train.steps=7", "run.device=cpu", "data.corpus=a b.txt", "plan.recompute=\"all\""});
  EXPECT_EQ(config.train.steps, 7u);
  EXPECT_EQ(config.run.device, "cpu");
  EXPECT_EQ(config.data.corpus, "a b.txt");
  EXPECT_EQ(config.plan.recompute.size(), config.model.layers);
  const Numerics numerics =
      parsed(kLeast, {"train.precision=bf16-mixed", "train.optimizer=adafactor"}).train.numerics;
  EXPECT_EQ(numerics, (Numerics{Precision::kBf16Mixed, OptimizerKind::kAdafactor}));
  EXPECT_THAT(error_of(kLeast, {"train.step=7"}), HasSubstr("did you mean 'train.steps'?"));
  EXPECT_THAT(error_of(kLeast, {"steps"}), HasSubstr("section.key=value"));
  EXPECT_THAT(error_of(kLeast, {"data.corpus.x=1"}), HasSubstr("unknown key"));
}

TEST(Config, AFamilyBringsItsUsualSizesAndItsFaultsNameTheKey) {
  const Config t5 = parsed(
      kLeast, {"model.family=t5", "model.layers=2", "model.width=32", "model.heads=4", "model.gated=true"});
  EXPECT_EQ(t5.model.decoder_layers, 2u);
  EXPECT_EQ(t5.model.vocabulary, 384u);
  EXPECT_TRUE(t5.model.gated);
  EXPECT_EQ(parsed(kLeast, {"model.family=t5", "plan.recompute=\"all\""}).plan.recompute.size(), 12u);
  EXPECT_THAT(error_of(kLeast, {"model.family=bert"}),
              HasSubstr("\"gpt2\" or \"llama\" or \"t5\", not \"bert\""));
  EXPECT_THAT(error_of(kLeast, {"model.key_value_heads=2"}), HasSubstr("only a llama"));
  EXPECT_THAT(error_of(kLeast, {"model.vocabulary=100"}), HasSubstr("at least 256"));
  EXPECT_THAT(error_of(kLeast, {"model.pretrained=nowhere"}), HasSubstr("nowhere/config.json"));
  EXPECT_THAT(error_of(kLeast, {"model.pretrained=nowhere", "model.layers=2"}),
              HasSubstr("'model.layers' comes from the config.json of 'model.pretrained'"));
}

TEST(Config, DropoutIsThatOfTheConfigJsonUnlessItIsSaid) {
  const ScratchFolder scratch;
  const auto write = [&](const std::string& rates) {
    ScratchFolder::write(scratch.file("config.json"),
                         R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64,
                             "vocab_size": 256)" +
                             rates + "}");
  };
  const std::vector<std::string> pretrained{"model.pretrained=\"" + scratch.file("") + "\""};
  std::string error;
  write("");
  const auto usual = parse_config(kLeast, pretrained, &error);
  ASSERT_TRUE(usual) << error;
  EXPECT_EQ(usual->model.dropout, 0.1);
  ASSERT_EQ(usual->remarks.size(), 1u);
  EXPECT_THAT(usual->remarks[0], HasSubstr("'attn_pdrop' is 0.1: attention is trained without dropout here"));
  auto said = pretrained;
  said.emplace_back("model.dropout=0.3");
  const auto own = parse_config(kLeast, said, &error);
  ASSERT_TRUE(own) << error;
  EXPECT_EQ(own->model.dropout, 0.3);
  EXPECT_TRUE(own->remarks.empty());
  write(R"(, "embd_pdrop": 0.2)");
  EXPECT_THAT(error_of(kLeast, pretrained), HasSubstr("'embd_pdrop' is 0.2, 'resid_pdrop' is 0.1 and"));
  EXPECT_TRUE(parse_config(kLeast, said, &error)) << error;
}

TEST(Config, BytesForWeightsThatKnowOtherTokensAreNamed) {
  const ScratchFolder scratch;
  const auto remarks = [&](int vocabulary) {
    ScratchFolder::write(scratch.file("config.json"),
                         R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64,
                             "vocab_size": )" +
                             std::to_string(vocabulary) + "}");
    return parsed(kLeast, {"model.pretrained=\"" + scratch.file("") + "\"", "model.dropout=0"}).remarks;
  };
  EXPECT_THAT(remarks(50257), testing::ElementsAre(HasSubstr("know other tokens")));
  EXPECT_THAT(remarks(256), testing::IsEmpty());
  EXPECT_THAT(remarks(384), testing::IsEmpty()) << "ByT5's";
}

TEST(Config, SettingsWithoutEffectAreNamedIfTheyWereGiven) {
  const auto remarks = [](const std::vector<std::string>& overrides) {
    std::string error;
    const auto config = parse_config(kLeast, overrides, &error);
    EXPECT_TRUE(config) << error;
    return config.value_or(Config{}).remarks;
  };
  EXPECT_THAT(remarks({}), testing::IsEmpty());
  EXPECT_THAT(remarks({"train.steps=3"}), testing::IsEmpty()) << "the usual warmup is longer";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"train.momentum=0.5"}, "'train.momentum' has no effect: 'train.optimizer' is \"adamw\""},
      {{"train.beta1=0.5", "train.optimizer=sgd"},
       "'train.beta1' has no effect: 'train.optimizer' is \"sgd\""},
      {{"train.loss_scale=2"}, "'train.loss_scale' has no effect: 'train.precision' is \"fp32\""},
      {{"train.warmup=100", "train.steps=30"}, "'train.warmup' (100) is longer than 'train.steps' (30)"},
      {{"plan.micro_batch=16", "train.batch=8"}, "'plan.micro_batch' has no effect: a step has the 8"},
      {{"plan.recompute_segment=2"},
       "'plan.recompute_segment' has no effect: no layer is in 'plan.recompute'"},
      {{"plan.tiles=2"}, "'plan.tiles' has no effect"},
      {{"plan.update_on=host"}, "'plan.update_on' has no effect: 'plan.parameters', 'plan.gradients' and"},
      {{"plan.update_slots=9", "plan.optimizer=host"},
       "'plan.update_slots' has no effect: 'plan.update' must be \"just_in_time\""},
      {{"plan.update_slots=9", "plan.update=just_in_time", "plan.update_on=host", "plan.optimizer=host",
        "plan.parameters=host", "plan.gradients=host"},
       "'plan.update_slots' has no effect: with 'plan.update_on' = \"host\" no layer's states"},
      {{"run.devices=2", "run.device=cpu"}, "'run.devices' has no effect: 'run.device' is \"cpu\""}};
  for (const auto& [overrides, says] : cases)
    EXPECT_THAT(remarks(overrides), testing::ElementsAre(HasSubstr(says)));
  EXPECT_THAT(remarks({"train.momentum=0.5", "train.optimizer=sgd", "plan.micro_batch=\"auto\""}),
              testing::IsEmpty());
}

TEST(Config, TheHostUpdatesOnlyWhatHasTheBitsOfACard) {
  const auto refused = [](const std::string& optimizer, const std::string& precision) {
    std::string error;
    parse_config(kLeast,
                 {"plan.update_on=host", "train.optimizer=" + optimizer, "train.precision=" + precision},
                 &error);
    EXPECT_TRUE(error.empty() || error.ends_with("write plan.update_on = \"device\"")) << error;
    return !error.empty();
  };
  for (const char* optimizer : {"adamw", "adam", "adamw8bit"}) {
    EXPECT_FALSE(refused(optimizer, "bf16-mixed")) << optimizer;
    EXPECT_TRUE(refused(optimizer, "int8")) << optimizer;
  }
  EXPECT_FALSE(refused("adamw", "bf16"));
  EXPECT_TRUE(refused("adamw8bit", "bf16"));
  EXPECT_TRUE(refused("sgd", "fp32"));
  EXPECT_TRUE(refused("adafactor", "fp32"));
}

TEST(Config, AGpt2MayHaveMorePositionsThanItsContext) {
  std::string error;
  const auto config = parse_config(kLeast, {"model.context=32", "model.positions=128"}, &error);
  ASSERT_TRUE(config) << error;
  EXPECT_EQ(config->model.context, 32u);
  EXPECT_EQ(config->model.positions(), 128u);
  EXPECT_THAT(error_of(kLeast, {"model.context=32", "model.positions=16"}),
              HasSubstr("'model.context' (32) is more than the 16 positions"));
  EXPECT_THAT(error_of(kLeast, {"model.family=llama", "model.positions=512"}), HasSubstr("for a gpt2"));
}

// The parser's own assertions must not end the program either.
TEST(Config, DamagedTextIsAnErrorAndNotACrash) {
  const std::string whole =
      "[model]\nlayers = 3\ndropout = 0.1\n[data]\ncorpus = \"x.txt\"\n[plan]\nrecompute = [0, 1]\n"
      "[[plan.schedule]]\nstep = 3\nmicro_batch = 2\n[run]\nlimit = '8GiB'\nout = \"\"\"a\nb\"\"\"\n";
  std::minstd_rand random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, 1, "[]{}=.'\"\n#,\\"[below(12)]);
          break;
        default:
          text.resize(at);
      }
    }
    std::string error;
    const bool read = parse_config(text, {}, &error).has_value();
    EXPECT_EQ(read, error.empty()) << text;
    refused += read ? 0 : 1;
  }
  EXPECT_GT(refused, 2000u);
}

TEST(ConfigFile, SaysWhyItCannotBeRead) {
  std::string error;
  EXPECT_FALSE(read_config("/no/such.toml", {}, &error));
  EXPECT_EQ(error, "/no/such.toml: cannot be read: No such file or directory");
  EXPECT_FALSE(read_config("/tmp", {}, &error));
  EXPECT_EQ(error, "/tmp: cannot be read: Is a directory");
  EXPECT_FALSE(read_config("/dev/null", {}, &error));
  EXPECT_EQ(error, "/dev/null: cannot be read: it is empty");
}

}  // namespace
}  // namespace spillway::trainer
