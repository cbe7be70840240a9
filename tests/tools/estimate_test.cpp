// `spillway estimate`: from every kind of model to items that add up; whatever it is given, it answers.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/sanitized.h"
#include "tests/tools/support.h"
#include "tools/spillway/plan/known_models.h"
#include "tools/spillway/plan/picture.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// As the models' pages on huggingface.co count them.
TEST(KnownModels, HaveTheParametersThatTheirPagesSay) {
  const std::map<std::string, uint64_t> parameters = {{"gpt2", 124439808},
                                                      {"gpt2-medium", 354823168},
                                                      {"gpt2-large", 774030080},
                                                      {"gpt2-xl", 1557611200},
                                                      {"llama-2-7b", 6738415616},
                                                      {"llama-2-13b", 13015864320},
                                                      {"llama-2-70b", 68976648192},
                                                      {"llama-3-8b", 8030261248},
                                                      {"llama-3-70b", 70553706496},
                                                      {"mistral-7b-v0.3", 7248023552},
                                                      {"tinyllama-1.1b", 1100048384},
                                                      {"smollm2-135m", 134515008},
                                                      {"smollm2-360m", 361821120},
                                                      {"smollm2-1.7b", 1711376384},
                                                      {"t5-small", 60506624},
                                                      {"t5-base", 222903552},
                                                      {"t5-large", 737668096},
                                                      {"t5-3b", 2851598336},
                                                      {"t5-11b", 11307321344},
                                                      {"flan-t5-small", 76961152},
                                                      {"flan-t5-base", 247577856},
                                                      {"flan-t5-large", 783150080},
                                                      {"flan-t5-xl", 2849757184},
                                                      {"flan-t5-xxl", 11135332352}};
  EXPECT_EQ(known_model_names().size(), parameters.size());
  for (const std::string& name : known_model_names()) {
    const auto model = known_model(name);
    ASSERT_TRUE(model && parameters.contains(name)) << name;
    const trainer::Architecture known = model.value_or(trainer::Architecture{});
    EXPECT_EQ(trainer::fault_of(known), "") << name;
    EXPECT_EQ(trainer::parameter_count(known), parameters.at(name)) << name;
  }
  EXPECT_TRUE(known_model("GPT2-XL"));
  EXPECT_FALSE(known_model("gpt3"));
}

TEST(Picture, BarsShowWhatIsThereAndWhatIsTooMuch) {
  EXPECT_EQ(bar_text(0, 100, 8), "");
  EXPECT_EQ(bar_text(1, 100000, 8), "▏") << "what is there is seen";
  EXPECT_EQ(bar_text(50, 100, 8), "████");
  EXPECT_EQ(bar_text(100, 100, 8), "████████");
  EXPECT_EQ(fill_text(50, 100, 8), "████····|");
  EXPECT_EQ(fill_text(100, 100, 8), "████████|");
  EXPECT_EQ(fill_text(101, 100, 8), "████████|█");
  EXPECT_EQ(fill_text(99999, 100, 8), "████████|████████") << "no longer than twice";
}

TEST(Picture, SvgEscapesWhatIsMarkup) {
  const std::string svg = bars_svg("a < b & \"c\"", {{"x>y", "", {{"<item>", 5}}, 0}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp;"));
  EXPECT_THAT(svg, HasSubstr("&lt;item&gt;: 5 B"));
  EXPECT_EQ(svg.find("<item>"), std::string::npos);
}

class EstimateCommand : public CommandTest {
 protected:
  Json data(std::vector<std::string> words) const {
    words.insert(words.begin(), "estimate");
    words.emplace_back("--json");
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return Json::parse(ran.out, nullptr, false);
  }
};

constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 50257, "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024})";
constexpr const char* kTrainer = R"([model]
layers = 3
width = 64
heads = 2
context = 32
[data]
corpus = "text"
[train]
batch = 6
[plan]
micro_batch = 3
optimizer = "host"
devices = [0, 1, 1]
)";

TEST_F(EstimateCommand, ItemsAddUpToThePeaks) {
  for (const char* model : {"gpt2", "smollm2-135m", "t5-small"}) {
    const Json json = data({model, "--optimizer-place", "host", "--recompute", "2"});
    uint64_t device = 0, host = 0;
    for (const Json& item : json["items"])
      (item["place"] == "host" ? host : device) += item["bytes"].get<uint64_t>();
    EXPECT_EQ(json["device_peak_bytes"][0], device);
    EXPECT_EQ(json["host_bytes"], host);
    EXPECT_EQ(host, 8 * json["model"]["parameters"].get<uint64_t>()) << "two moments of four bytes";
  }
}

// A folder's model has the dropout that it is trained with, a name's none.
TEST_F(EstimateCommand, AFolderAFileAndANameAreOneModel) {
  nlohmann::json config = nlohmann::json::parse(kGpt2);
  write("usual/config.json", config.dump());
  for (const char* rate : {"embd_pdrop", "resid_pdrop", "attn_pdrop"}) config[rate] = 0;
  write("model/config.json", config.dump());
  EXPECT_GT(data({"usual", "--batch", "2"})["device_peak_bytes"][0],
            data({"model", "--batch", "2"})["device_peak_bytes"][0]);
  Json by_name = data({"gpt2", "--batch", "2"}), by_folder = data({"model", "--batch", "2"}),
       by_file = data({"model/config.json", "--batch", "2"});
  for (Json* json : {&by_name, &by_folder, &by_file}) (*json)["model"].erase("name");
  EXPECT_EQ(by_folder, by_name);
  EXPECT_EQ(by_file, by_name);
}

TEST_F(EstimateCommand, AConfigurationOfTheTrainerBringsItsPlan) {
  write("run.toml", kTrainer);
  const Json json = data({"run.toml"});
  EXPECT_EQ(json["batch"], 6);
  EXPECT_EQ(json["plan"], "micro_batch=3 evaluation_batch=6 optimizer=host device1=1-2");
  EXPECT_EQ(json["device_peak_bytes"].size(), 2u);
  EXPECT_EQ(data({"run.toml", "--optimizer-place", "device", "--micro-batch", "2"})["plan"],
            "micro_batch=2 evaluation_batch=2 device1=1-2");
}

TEST_F(EstimateCommand, RecomputingAndSmallerBatchesNeedLess) {
  const auto peak = [this](const std::vector<std::string>& more) {
    std::vector<std::string> words{"gpt2"};
    words.insert(words.end(), more.begin(), more.end());
    return data(words)["device_peak_bytes"][0].get<uint64_t>();
  };
  const uint64_t plain = peak({});
  EXPECT_LT(peak({"--recompute", "all"}), peak({"--recompute", "6"}));
  EXPECT_LT(peak({"--recompute", "6"}), plain);
  EXPECT_LT(peak({"--micro-batch", "4"}), plain);
  EXPECT_LT(peak({"--batch", "4"}), plain);
  EXPECT_LT(peak({"--optimizer-place", "host"}), plain);
  EXPECT_GT(peak({"--dropout", "0.1"}), plain);
}

// Each key by itself, and as the configuration has it.
TEST_F(EstimateCommand, SetsEveryKeyOfThePlan) {
  const std::string usual = R"([model]
layers = 6
width = 64
heads = 2
context = 32
vocabulary = 5000
[data]
corpus = "text"
[train]
batch = 8
[plan]
)";
  write("usual.toml", usual);
  const Json plain = data({"usual.toml"});
  const std::string on_host = "parameters=\"host\";gradients=\"host\";optimizer=\"host\";";
  for (const std::string& keys :
       {std::string("micro_batch=2"), std::string("evaluation_batch=3"), std::string("recompute=\"all\""),
        std::string("recompute=[1, 3]"), std::string("recompute_attention=4"),
        std::string("recompute_mlp=\"all\""), std::string("recompute=\"all\";recompute_segment=2"),
        std::string("head_chunks=4"), std::string("optimizer=\"nvme\""), std::string("parameters=\"host\""),
        std::string("gradients=\"host\""), std::string("offload=\"all\""),
        std::string("devices=[0, 0, 1, 1]"), std::string("devices=[0, 0, 1, 1];micro_batch=2;pipeline=2"),
        std::string("offload=\"all\";offload_to=\"peer\";peers={0 = 1}"), on_host + "tiles=2",
        on_host + "update=\"just_in_time\"", on_host + "update=\"just_in_time\";update_slots=9",
        on_host + "update_on=\"host\""}) {
    std::vector<std::string> words{"usual.toml"};
    std::istringstream list(keys);
    std::string keyed_text = usual;
    for (std::string key; std::getline(list, key, ';');) {
      keyed_text += key + "\n";
      words.insert(words.end(), {"--set", "plan." + key});
    }
    write("keyed.toml", keyed_text);
    Json keyed = data({"keyed.toml"}), set = data(words);
    EXPECT_NE(set["plan"], plain["plan"]) << keys;
    for (Json* json : {&keyed, &set}) (*json)["model"].erase("name");
    EXPECT_EQ(set, keyed) << keys;
  }
  EXPECT_EQ(data({"--set", "plan.recompute=all", "--set", "plan.recompute_segment=3", "usual.toml"})["plan"],
            "micro_batch=8 evaluation_batch=8 recompute=0-5 recompute_segment=3");
  EXPECT_EQ(data({"gpt2", "--recompute", "all", "--set", "plan.recompute=none"})["plan"],
            "micro_batch=8 evaluation_batch=8");
}

TEST_F(EstimateCommand, SpreadsLayersOverTheCardsThatThereAre) {
  const auto placed = [this](std::vector<std::string> words) {
    const Json json = data(std::move(words));
    return std::pair(json["plan"].get<std::string>(), json["device_peak_bytes"].size());
  };
  const auto by_hand = placed({"gpt2", "--set", "plan.devices=[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]"});
  EXPECT_EQ(by_hand.second, 2u);
  EXPECT_EQ(placed({"gpt2", "--set", "plan.devices=even", "--gpus", "2"}), by_hand);
  EXPECT_EQ(placed({"gpt2", "--set", "plan.devices=balanced", "--gpus", "3"}).second, 3u);
  EXPECT_EQ(placed({"gpt2", "--set", "plan.parameters=peer", "--gpus", "2"}).second, 2u);
  std::string spread = kTrainer;
  spread.replace(spread.find("[0, 1, 1]"), 9, "\"even\"");
  write("spread.toml", spread + "[run]\ndevices = 3\n");
  EXPECT_EQ(placed({"spread.toml"}).second, 3u);
  EXPECT_EQ(placed({"spread.toml", "--gpus", "2"}).second, 2u) << "it comes before run.devices";
  EXPECT_EQ(placed({"spread.toml", "--gpus", "1"}).second, 1u);
  EXPECT_EQ(placed({"spread.toml", "--ranks", "2"}).second, 1u) << "a rank has one";
  write("placed.toml", std::string(kTrainer) + "[run]\ndevices = 2\n");
  EXPECT_EQ(placed({"placed.toml", "--set", "plan.devices=even", "--gpus", "3"}).second, 3u);
  const auto refused = [this](const std::vector<std::string>& more, const std::string& why) {
    std::vector<std::string> words{"estimate", "gpt2"};
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 2) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({"--set", "plan.devices=even"}, "say how many there are with --gpus");
  refused({"--set", "plan.parameters=peer"}, "say how many there are with --gpus");
  refused({"--set", "plan.devices=[0, 2]", "--gpus", "2"}, "the plan names GPU 2, and the run has 2");
  refused({"--gpus", "2"}, "the plan has everything on one GPU");
  refused({"--gpus", "2", "--ranks", "2"}, "--gpus: each of several ranks has one");
}

TEST_F(EstimateCommand, RanksShareTheBatchAndTheStates) {
  const auto states = [](const Json& json) {
    for (const Json& item : json["items"])
      if (item["name"] == "optimizer state") return item["bytes"].get<uint64_t>();
    return uint64_t{0};
  };
  const Json alone = data({"gpt2"}), each = data({"gpt2", "--ranks", "4"}),
             shared = data({"gpt2", "--ranks", "4", "--zero", "1"});
  EXPECT_EQ(each["batch"], 2);
  EXPECT_EQ(states(each), states(alone));
  EXPECT_NEAR(double(states(shared)) / double(states(alone)), 0.25, 0.001);
  EXPECT_THAT(each["plan"].get<std::string>(), HasSubstr("micro_batch=2 evaluation_batch=2"));
  const Json evaluated = data({"gpt2", "--ranks", "4", "--evaluation-batch", "6"});
  EXPECT_THAT(evaluated["plan"].get<std::string>(), HasSubstr("micro_batch=2 evaluation_batch=6"));
  EXPECT_EQ(alone["sent_bytes"], 0);
  EXPECT_NEAR(each["sent_bytes"].get<double>(), 2 * 0.75 * 4 * 124.4e6, 1e7);
  EXPECT_THAT(run({"estimate", "gpt2", "--ranks", "4"}).out, HasSubstr("A rank sends 712"));
  const Ran few = run({"estimate", "gpt2", "--ranks", "9"}),
            whole = run({"estimate", "gpt2", "--ranks", "2", "--zero", "1", "--optimizer", "adafactor"});
  EXPECT_THAT(few.err, HasSubstr("--ranks: the batch has 8 rows, fewer than 9 ranks"));
  const Ran nobody = run({"estimate", "gpt2", "--zero", "1"});
  EXPECT_EQ(nobody.code, few.code);
  EXPECT_THAT(nobody.err, HasSubstr("--zero: one rank has nobody to share with"));
  EXPECT_THAT(whole.err, HasSubstr("--zero: the states of adafactor belong to whole matrices"));
}

TEST_F(EstimateCommand, OfStagesTheItemsAreThoseOfTheOneThatNeedsMost) {
  const Json alone = data({"gpt2"});
  EXPECT_TRUE(alone["stages"].empty() && alone["stage"].is_null());
  std::string text = kTrainer;
  text.erase(text.find("devices = [0, 1, 1]"), 19);
  write("two.toml", text + "[run]\ndevices = 2\n");
  EXPECT_EQ(data({"two.toml", "--ranks", "2", "--stages", "2"})["device_peak_bytes"].size(), 1u);
  const Json json = data({"gpt2", "--ranks", "4", "--stages", "2", "--micro-batch", "1"});
  ASSERT_EQ(json["stages"].size(), 2u);
  uint64_t most = 0;
  for (const Json& stage : json["stages"]) most = std::max<uint64_t>(most, stage["device_peak_bytes"]);
  EXPECT_EQ(json["stages"][json["stage"].get<size_t>()]["device_peak_bytes"], most);
  EXPECT_EQ(json["device_peak_bytes"][0], most);
}

TEST_F(EstimateCommand, TheTableHasEveryItemAndABar) {
  const Ran ran = run({"estimate", "gpt2", "--svg", "picture.svg"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* item :
       {"parameters", "gradients", "optimizer state", "attention's activations", "logits and loss",
        "peak of a step", "peak of an evaluation", "█", "124.4 million parameters"})
    EXPECT_THAT(ran.out, HasSubstr(item));
  EXPECT_THAT(read("picture.svg"), HasSubstr("MLP's activations"));
  EXPECT_TRUE(read("picture.svg").ends_with("</svg>\n"));
}

TEST_F(EstimateCommand, OfAShorterContextAGpt2HasAllItsParameters) {
  write("small/config.json",
        R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64,
    "vocab_size": 256, "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0})");
  for (const std::string model : {"gpt2", "small"}) {
    const std::vector<std::string> whole{"estimate", model, "--json"};
    std::vector<std::string> shorter = whole;
    shorter.insert(shorter.end(), {"--context", "32"});
    const Ran all = run(whole), some = run(shorter);
    ASSERT_EQ(some.code, 0) << some.err;
    const auto of = [](const Ran& ran) { return nlohmann::json::parse(ran.out)["model"]["parameters"]; };
    EXPECT_EQ(of(all), of(some)) << some.out;
  }
}

TEST_F(EstimateCommand, AnswersWrongUsage) {
  write("no_model/readme.txt", "");
  write("broken.json", "{");
  write("broken.toml", "[model\n");
  write("windowed/config.json", R"({"model_type": "mistral", "vocab_size": 10})");
  const auto refused = [this](std::vector<std::string> words, const std::string& why, int code) {
    words.insert(words.begin(), "estimate");
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, code) << why << ran.out;
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({}, "MODEL is required", 2);
  refused({"gpt2-lage"}, "Did you mean 'gpt2-large'?", 2);
  refused({"gpt2", "--batch", "0"}, "--batch", 2);
  refused({"gpt2", "--batch", "many"}, "--batch", 2);
  refused({"gpt2", "--batch", "5", "--micro-batch", "9"}, "--micro-batch 9 is more than the batch, 5", 2);
  refused({"gpt2", "--context", "2048"}, "at most 1024 tokens", 2);
  refused({"gpt2", "--recompute", "13"}, "neither none, all nor a number of layers up to 12", 2);
  refused({"gpt2", "--recompute", "-1"}, "neither none", 2);
  refused({"gpt2", "--recompute", "3x"}, "neither none", 2);
  refused({"gpt2", "--optimizer-place", "disk"}, "disk", 2);
  refused({"gpt2", "--optimizer", "adamm"}, "adamm", 2);
  refused({"gpt2", "--set", "plan.head_chunk=2"}, "did you mean 'plan.head_chunks'?", 2);
  refused({"gpt2", "--set", "plan.tiles=0"}, "--set plan.tiles=0: ", 2);
  refused({"gpt2", "--set", "train.batch=4"}, "write plan.key=value", 2);
  refused({"gpt2", "--set", "plan.tiles"}, "write section.key=value", 2);
  refused({"gpt2", "--optimizer", "adafactor", "--set", "plan.tiles=2"}, "'plan.tiles' is for matrices", 2);
  refused({"gpt2", "--ranks", "2", "--stages", "2", "--set", "plan.parameters=host"},
          "'plan.parameters' is not for 'run.stages' above 1", 2);
  refused({"gpt2", "--ranks", "2", "--zero", "2", "--set", "plan.tiles=2"}, "'plan.tiles' cuts matrices", 2);
  refused({"t5-11b", "--context", "8192", "--batch", "1", "--set", "plan.evaluation_batch=2147483647"},
          "too large to count", 2);
  refused({"gpt2", "--dropout", "1"}, "--dropout", 2);
  refused({"t5-11b", "--context", "1000000", "--batch", "1000000"}, "too large to count", 2);
  refused({"gpt2", "--evaluation-batch", "1048576", "--micro-bach", "3"}, "Did you mean '--micro-batch'?", 2);
  refused({"no_model"}, "config.json", 3);
  refused({"broken.json"}, "broken.json", 3);
  refused({"broken.toml"}, "line 1", 3);
  refused({"windowed"}, "'sliding_window' must be null for a mistral", 3);
  refused({"mistral-7b"}, "Did you mean 'mistral-7b-v0.3'?", 2);
  refused({"meta-llama/Meta-Llama-3-8B"}, "Did you mean 'llama-3-8b'?", 2);
  refused({"gpt2", "--svg", "none/picture.svg"}, "cannot be written", 4);
}

TEST_F(EstimateCommand, WhateverItIsGivenItAnswers) {
  std::mt19937 random(3);
  const std::vector<std::string> words = {"gpt2",
                                          "t5-small",
                                          "",
                                          "-1",
                                          "0",
                                          "4294967296",
                                          "1e9",
                                          "--batch",
                                          "--context",
                                          "--micro-batch",
                                          "--recompute",
                                          "all",
                                          "--optimizer",
                                          "host",
                                          "--dropout",
                                          "0.5",
                                          "--json",
                                          "--svg",
                                          "/",
                                          "nan",
                                          "--",
                                          "7",
                                          "\xff",
                                          "--evaluation-batch",
                                          "--set",
                                          "plan.tiles=3",
                                          "plan.devices=even",
                                          "plan.offload=",
                                          "plan.=\xff",
                                          "--gpus"};
  for (int i = 0; i < (kSanitized ? 40 : 150); ++i) {
    std::vector<std::string> line{"estimate"};
    for (size_t count = random() % 7; count > 0; --count) line.push_back(words[random() % words.size()]);
    const Ran ran = run(line);
    ASSERT_THAT(ran.code, ::testing::AnyOf(0, 2, 3, 4)) << ::testing::PrintToString(line) << ran.err;
    ASSERT_EQ(ran.code == 0, ran.err.empty()) << ::testing::PrintToString(line) << ran.err;
  }
}

}  // namespace
}  // namespace spillway::tools
