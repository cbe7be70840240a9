// `spillway plan`: the card, the alternatives, the plan that spillway-train takes; whatever it is given, it
// answers.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "simulator/cards/cards.h"
#include "tests/sanitized.h"
#include "tests/tools/support.h"
#include "tools/spillway/plan/gpu.h"
#include "trainer/config/config.h"

namespace spillway::tools {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Gpu gpu_of(const std::string& text) {
  std::string error;
  const auto gpu = find_gpu(text, &error);
  EXPECT_TRUE(gpu) << error;
  return gpu.value_or(Gpu{});
}

std::string refusal_of(const std::string& text) {
  std::string error;
  EXPECT_FALSE(find_gpu(text, &error)) << text;
  return error;
}

TEST(Gpus, AreFoundByAnyPartThatIsOnesOwn) {
  EXPECT_EQ(gpu_of("4090").id, "rtx4090-24gb");
  EXPECT_EQ(gpu_of("RTX 4090").id, "rtx4090-24gb");
  EXPECT_EQ(gpu_of("NVIDIA GeForce RTX 4090").id, "rtx4090-24gb");
  EXPECT_EQ(gpu_of("a100-80gb").id, "a100-80gb");
  EXPECT_EQ(gpu_of("H100").id, "h100-80gb");
  EXPECT_EQ(gpu_of("3060").id, "rtx3060-12gb");
  EXPECT_EQ(gpu_of("NVIDIA A10").id, "a10-24gb") << "its whole name, though another's begins so";
}

TEST(Gpus, ASizeIsWhatATrainingMayUse) {
  const trainer::Machine machine = machine_of(gpu_of("24GiB"), 2, trainer::Precision::kFloat32), usual;
  EXPECT_EQ(machine.device_bytes, uint64_t{24} << 30);
  EXPECT_EQ(machine.devices, 2u);
  EXPECT_NEAR(machine.flops, usual.flops, 1e-6 * usual.flops);
  EXPECT_NEAR(machine.memory_bytes_per_second, usual.memory_bytes_per_second, 1);
}

TEST(Gpus, ProductsAreAsFastAsThePrecisionHasThem) {
  const auto tflops = [](const char* card, trainer::Precision precision) {
    return machine_of(gpu_of(card), 1, precision).flops / kAchievedOperations / 1e12;
  };
  EXPECT_NEAR(tflops("a100-40gb", trainer::Precision::kFloat32), 19.5, 0.1);
  EXPECT_NEAR(tflops("a100-40gb", trainer::Precision::kTf32), 156, 0.1);
  EXPECT_NEAR(tflops("a100-40gb", trainer::Precision::kBf16Mixed), 312, 0.1);
  EXPECT_NEAR(tflops("t4-16gb", trainer::Precision::kTf32), 8.1, 0.1) << "it has no such products";
}

TEST(Gpus, ACardWithoutAPrecisionSaysSoAndIsNoFasterForIt) {
  using enum trainer::Precision;
  const Gpu t4 = gpu_of("t4"), v100 = gpu_of("v100-16gb"), l4 = gpu_of("l4-24gb");
  for (const trainer::Precision precision : {kBf16, kBf16Mixed, kInt8}) {
    EXPECT_NEAR(machine_of(t4, 1, precision).flops, 8.1e12 * kAchievedOperations, 1e11);
    EXPECT_THAT(note_on(t4, precision), HasSubstr("no tensor cores for bfloat16"));
    EXPECT_EQ(note_on(l4, precision), "");
    EXPECT_EQ(note_on(gpu_of("24GiB"), precision), "");
  }
  EXPECT_NEAR(machine_of(t4, 1, kFp16Mixed).flops, 65e12 * kAchievedOperations, 1e11);
  EXPECT_EQ(note_on(t4, kFp16Mixed), "");
  EXPECT_THAT(note_on(v100, kFloat32), HasSubstr("cannot run there"));
}

TEST(Gpus, WhatIsNoneIsRefusedWithTheNearest) {
  EXPECT_THAT(refusal_of("a100"), HasSubstr("may be a100-40gb a100-80gb"));
  EXPECT_THAT(refusal_of("rtx4091-24gb"), HasSubstr("Did you mean 'rtx4090-24gb'?"));
  for (const char* text : {"", "-", "0", "4", "GiB", "-3GiB", "\xff\xfe"})
    EXPECT_THAT(refusal_of(text), HasSubstr(" is no")) << text;
}

TEST(Gpus, EveryCardOfTheSimulatorHasItsSpeeds) {
  for (const cards::Card& card : cards::cards()) {
    const Gpu gpu = gpu_of(std::string(card.id));
    EXPECT_EQ(gpu.capacity_bytes, card.capacity_bytes);
    EXPECT_GT(gpu.half, 1.9 * gpu.fp32) << card.id;
  }
}

TEST(Gpus, FiguresAreThoseOfTheDataSheets) {
  const std::map<std::string, double> tflops = {
      {"t4-16gb", 8.1},  {"rtx3090-24gb", 35.6}, {"rtx4090-24gb", 82.6}, {"rtx5090-32gb", 104.8},
      {"l4-24gb", 30.3}, {"l40s-48gb", 91.6},    {"a100-40gb", 19.5},    {"a100-80gb", 19.5},
      {"h100-80gb", 67}, {"h200-141gb", 67},     {"b200-180gb", 75},     {"v100-32gb", 15.7}};
  const std::map<std::string, double> gigabytes = {
      {"t4-16gb", 320},     {"rtx4090-24gb", 1008}, {"l40s-48gb", 864},
      {"a100-40gb", 1555},  {"a100-80gb", 2039},    {"h100-80gb", 3350},
      {"h200-141gb", 4800}, {"b200-180gb", 8000},   {"v100-32gb", 900}};
  for (const auto& [id, sheet] : tflops) EXPECT_NEAR(gpu_of(id).fp32 / 1e12, sheet, 0.012 * sheet) << id;
  for (const auto& [id, sheet] : gigabytes) EXPECT_NEAR(gpu_of(id).memory / 1e9, sheet, 0.025 * sheet) << id;
  for (const Gpu& gpu : gpus()) {
    EXPECT_GT(gpu.capacity_bytes, uint64_t{9} << 30) << gpu.id;
    EXPECT_GT(gpu.outside_bytes, uint64_t{64} << 20) << gpu.id;
    EXPECT_LT(gpu.outside_bytes, uint64_t{1} << 30) << gpu.id;
    EXPECT_GE(gpu.host, 12e9) << gpu.id;
  }
}

class PlanCommand : public CommandTest {
 protected:
  nlohmann::json data(std::vector<std::string> words, int code = 0) const {
    words.insert(words.begin(), {"plan", "--json"});
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, code) << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }
  trainer::Config config(const std::string& name) const {
    std::string error;
    auto read = trainer::read_config((folder() / name).string(), {}, &error);
    EXPECT_TRUE(read) << error;
    return read.value_or(trainer::Config{});
  }
};

TEST_F(PlanCommand, LargerCardsAreFasterAndTheBestFits) {
  double before = 0;
  for (const char* card : {"8GiB", "12GiB", "16GiB", "24GiB", "80GiB"}) {
    const nlohmann::json json = data({"--gpu", card, "gpt2-medium"});
    const nlohmann::json& best = json["best"];
    EXPECT_TRUE(best["fits"]);
    EXPECT_EQ(best, json["alternatives"][0]);
    EXPECT_LE(best["device_peak_bytes"][0], json["usable_bytes"]);
    EXPECT_GE(best["tokens_per_second"].get<double>(), before) << card;
    before = best["tokens_per_second"].get<double>();
  }
}

// Copies of layers run beside the passes: where they take longer, the passes are not counted.
TEST_F(PlanCommand, PartsOfTheStepAddUpAndTheLargestIsTheLimit) {
  const nlohmann::json json = data({"--gpu", "16GiB", "gpt2-medium"});
  for (const nlohmann::json& row : json["alternatives"]) {
    std::map<std::string, uint64_t> parts = row["step"];
    const uint64_t total = parts["total_us"], streamed = parts["streamed_us"];
    parts.erase("total_us"), parts.erase("streamed_us");
    const uint64_t passes = parts["compute_us"] + parts["device_memory_us"] + parts["launches_us"];
    uint64_t sum = std::max(passes, streamed) - passes, most = 0;
    for (const auto& [name, us] : parts) sum += us;
    EXPECT_NEAR(double(sum), double(total), 8);
    if (streamed > passes) parts["host_link_us"] = std::max(parts["host_link_us"], streamed);
    for (const auto& [name, us] : parts) most = std::max(most, us);
    std::string limit = row["limit"].get<std::string>() + "_us";
    std::ranges::replace(limit, ' ', '_');
    EXPECT_EQ(parts[limit], most);
  }
}

TEST_F(PlanCommand, WhatDoesNotFitEndsWithItsOwnCode) {
  const Ran ran = run({"plan", "--gpu", "8GiB", "llama-3-70b", "--toml", "plan.toml"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("No plan fits."));
  EXPECT_THAT(ran.out, HasSubstr("lacks "));
  EXPECT_FALSE(std::filesystem::exists(folder() / "plan.toml"));
  const nlohmann::json json = data({"--gpu", "8GiB", "llama-3-70b"}, 20);
  EXPECT_TRUE(json["best"].is_null());
}

TEST_F(PlanCommand, TheTrainerTakesThePlanOfAKnownModel) {
  const Ran ran = run({"plan", "--gpu", "10GiB", "gpt2-medium", "--batch", "16", "--toml", "plan.toml"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const trainer::Config made = config("plan.toml");
  EXPECT_EQ(made.train.batch, 16u);
  EXPECT_EQ(made.model.width, 1024u);
  EXPECT_EQ(made.model.vocabulary, 50257u);
  EXPECT_EQ(to_string(made.plan),
            data({"--gpu", "10GiB", "gpt2-medium", "--batch", "16"})["best"]["plan"].get<std::string>());
  EXPECT_THAT(ran.out, HasSubstr(to_toml(made.plan)));
}

TEST_F(PlanCommand, TheTrainerTakesThePlanOfAFolderOfHuggingFaces) {
  write("the model/config.json", R"({"model_type": "llama", "vocab_size": 1000, "num_hidden_layers": 4,
    "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512,
    "max_position_embeddings": 512})");
  const Ran ran = run({"plan", "--gpu", "4090", "the model", "--context", "128", "--toml", "plan.toml"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(read("plan.toml"), HasSubstr("pretrained = 'the model'"));
  EXPECT_THAT(read("plan.toml"), HasSubstr("context = 128"));
}

TEST_F(PlanCommand, OfTheTrainersConfigurationOnlyThePlanIsNew) {
  write("run.toml",
        "[model]\nlayers = 4\nwidth = 128\nheads = 4\ncontext = 64\n[data]\ncorpus = \"a \\\"text\\\"\"\n"
        "[train]\nbatch = 12\nlearning_rate = 0.002\n[recovery]\nfloor = \"bit_exact\"\n[plan]\nmicro_batch "
        "= 6\n");
  const Ran ran = run({"plan", "--gpu", "30MiB", "run.toml", "--toml", "new.toml"});
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  const trainer::Config old_config = config("run.toml"), made = config("new.toml");
  EXPECT_EQ(made.model, old_config.model);
  EXPECT_EQ(made.data.corpus, "a \"text\"");
  EXPECT_EQ(made.train.learning_rate, 0.002);
  ASSERT_EQ(run({"plan", "--gpu", "40MiB", "run.toml", "--dropout", "0.25", "--toml", "masks.toml"}).code, 0);
  EXPECT_EQ(config("masks.toml").model.dropout, 0.25) << "what was planned with";
  EXPECT_EQ(made.plan.micro_batch, 6u) << "its floor is bit exact";
  EXPECT_NE(made.plan, old_config.plan);
  write("stages.toml", read("run.toml") + "[run]\nstages = 2\nstage_layers = [3, 1]\nzero = 1\n");
  const std::vector<std::string> ranks{"plan",    "--gpu", "30MiB",  "stages.toml",
                                       "--ranks", "4",     "--toml", "new.toml"};
  EXPECT_EQ(run(ranks).code, 0);
  EXPECT_EQ(config("new.toml").run.stage_layers, (std::vector<uint32_t>{3, 1}));
  std::vector<std::string> replicas = ranks;
  replicas.insert(replicas.end(), {"--stages", "1", "--zero", "0"});
  EXPECT_EQ(run(replicas).code, 0);
  EXPECT_EQ(config("new.toml").run.stages, 1u);
  EXPECT_EQ(config("new.toml").run.zero, 0u);
  EXPECT_EQ(run({"plan", "--gpu", "20MiB", "run.toml"}).code, 20);
  EXPECT_EQ(run({"plan", "--gpu", "20MiB", "run.toml", "--floor", "numerically_equal"}).code, 0);
}

TEST_F(PlanCommand, SeveralCardsTakeAModelThatIsTooLargeForOne) {
  EXPECT_EQ(run({"plan", "--gpu", "a100-80gb", "llama-3-8b"}).code, 0) << "with its moments on the host";
  EXPECT_EQ(run({"plan", "--gpu", "a100-80gb", "llama-3-8b", "--host-memory", "1MiB"}).code, 20);
  EXPECT_THAT(
      data({"--gpu", "a100-80gb", "llama-3-8b", "--host-memory", "16GiB"})["best"]["plan"].get<std::string>(),
      HasSubstr("optimizer=nvme"));
  const nlohmann::json two =
      data({"--gpu", "a100-80gb", "--gpus", "2", "llama-3-8b", "--host-memory", "16GiB"});
  EXPECT_THAT(two["best"]["plan"].get<std::string>(), HasSubstr("device1="));
}

TEST_F(PlanCommand, OfSeveralRanksThePlanIsOfOneAndTheStepHasWhatTheyExchange) {
  const std::vector<std::string> model{"--gpu", "24GiB", "gpt2", "--batch", "16"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), model.begin(), model.end());
    return more;
  };
  const nlohmann::json alone = data(with({})), four = data(with({"--ranks", "4", "--zero", "1"})),
                       slow = data(with({"--ranks", "4", "--ranks-per-machine", "2", "--network", "1"}));
  EXPECT_EQ(four["batch"], 4);
  EXPECT_EQ(four["ranks"], 4);
  EXPECT_EQ(alone["best"]["step"]["ranks_us"], 0);
  EXPECT_GT(four["best"]["step"]["ranks_us"], 0);
  EXPECT_LT(four["best"]["device_peak_bytes"][0], alone["best"]["device_peak_bytes"][0]);
  EXPECT_GT(four["best"]["tokens_per_second"], 2 * alone["best"]["tokens_per_second"].get<double>());
  EXPECT_LT(slow["best"]["tokens_per_second"], four["best"]["tokens_per_second"]);
  EXPECT_EQ(slow["best"]["limit"], "ranks");

  const Ran ran = run(
      {"plan", "--gpu", "24GiB", "gpt2", "--batch", "16", "--ranks", "4", "--zero", "1", "--toml", "p.toml"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("4 ranks share 16 rows a step"));
  EXPECT_THAT(ran.out, HasSubstr("ranks exchange for"));
  EXPECT_EQ(config("p.toml").train.batch, 16u);
  EXPECT_EQ(config("p.toml").run.zero, 1u);
  EXPECT_THAT(run({"plan", "--gpu", "24GiB", "gpt2", "--ranks", "9"}).err,
              HasSubstr("plan: --ranks: the batch has 8 rows, fewer than 9 ranks"));
  for (const std::string option : {"--ranks-per-machine", "--network"})
    EXPECT_THAT(run({"plan", "--gpu", "24GiB", "gpt2", option, "2"}).err,
                HasSubstr("plan: " + option + ": one rank has no links to others"));
}

TEST_F(PlanCommand, OfStagesThePlanFitsEachAndIsReadByTheTrainer) {
  const std::vector<std::string> words{"--gpu",  "16GiB", "gpt2-large", "--batch", "32",     "--ranks", "4",
                                       "--zero", "1",     "--stages",   "2",       "--toml", "p.toml"};
  std::vector<std::string> as_text{"plan"};
  as_text.insert(as_text.end(), words.begin(), words.end());
  const Ran ran = run(as_text);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("4 ranks in 2 stages, 2 of each, share 32 rows a step"));
  const trainer::Config planned = config("p.toml");
  EXPECT_EQ(planned.run.stages, 2u);
  EXPECT_EQ(planned.run.stage_layers.size(), 2u);
  EXPECT_EQ(planned.run.stage_layers[0] + planned.run.stage_layers[1], 36u);

  const nlohmann::json two = data(words);
  EXPECT_EQ(two["ranks"], 4);
  ASSERT_EQ(two["stages"].size(), 2);
  EXPECT_EQ(two["stages"][1]["first_layer"], planned.run.stage_layers[0]);
  for (const nlohmann::json& stage : two["stages"]) {
    EXPECT_TRUE(stage["fits"]);
    EXPECT_LE(stage["device_peak_bytes"], two["usable_bytes"]);
    EXPECT_LE(stage["step_us"], two["best"]["step"]["total_us"]);
  }
  EXPECT_GT(two["best"]["step"]["ranks_us"], 0);

  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--gpu", "24GiB"});
    return run(more).err;
  };
  EXPECT_THAT(refused({"gpt2", "--ranks", "3", "--stages", "2"}),
              HasSubstr("plan: --stages is 2, and 3 rank(s) cannot be as many of each stage"));
  EXPECT_THAT(refused({"gpt2", "--ranks", "16", "--stages", "16"}),
              HasSubstr("plan: --stages is 16, more than the model's 12 layers"));
  EXPECT_THAT(refused({"gpt2", "--ranks", "4", "--stages", "2", "--zero", "3"}),
              HasSubstr("take stage 1 of ZeRO"));
  EXPECT_THAT(refused({"gpt2", "--ranks", "2", "--stages", "2", "--gpus", "2"}),
              HasSubstr("plan: --gpus: each rank of a pipeline's stages has one"));
}

TEST_F(PlanCommand, OfEveryWayToShareTheModelTheFastestIsShown) {
  const std::string model = kSanitized ? "gpt2" : "gpt2-large";  // with a third of its layers
  const std::vector<std::string> all{"--gpu",    "16GiB", model,    "--batch", "32",     "--ranks", "4",
                                     "--stages", "auto",  "--zero", "auto",    "--toml", "p.toml"};
  const nlohmann::json chosen = data(all);
  // ZeRO has four stages among four ranks; with two stages of a pipeline 0 and 1 are left, with four none of
  // one rank.
  ASSERT_EQ(chosen["meshes"].size(), 4u + 2u + 1u) << chosen["meshes"];
  double fastest = 0;
  for (const nlohmann::json& mesh : chosen["meshes"]) {
    EXPECT_EQ(mesh["stages"].get<int>() * mesh["replicas"].get<int>(), 4);
    if (mesh["fits"]) fastest = std::max(fastest, mesh["tokens_per_second"].get<double>());
    const nlohmann::json one =
        data({"--gpu", "16GiB", model, "--batch", "32", "--ranks", "4", "--stages",
              std::to_string(mesh["stages"].get<int>()), "--zero", std::to_string(mesh["zero"].get<int>())});
    ASSERT_EQ(one["meshes"].size(), 1u);
    EXPECT_EQ(one["meshes"][0], mesh);
  }
  EXPECT_EQ(chosen["best"]["tokens_per_second"], fastest);
  uint64_t most = 0;
  const nlohmann::json four =
      data({"--gpu", "16GiB", model, "--batch", "32", "--ranks", "4", "--stages", "4"});
  for (const nlohmann::json& stage : four["stages"])
    most = std::max<uint64_t>(most, stage["device_peak_bytes"]);
  EXPECT_EQ(chosen["meshes"].back()["device_peak_bytes"], most);
  const trainer::Config planned = config("p.toml");
  const auto best = std::ranges::find(chosen["meshes"], fastest, [](const nlohmann::json& mesh) {
    return mesh["fits"] ? mesh["tokens_per_second"].get<double>() : 0;
  });
  EXPECT_EQ(planned.run.stages, (*best)["stages"]);
  EXPECT_EQ(planned.run.zero, (*best)["zero"]);

  std::vector<std::string> words{"plan"};
  words.insert(words.end(), all.begin(), all.end());
  const Ran ran = run(words);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("stages  replicas  ZeRO"));
  const Ran none = run({"plan", "--gpu", "2GiB", "gpt2-xl", "--host-memory", "1MiB", "--ranks", "3",
                        "--batch", "2", "--stages", "auto", "--zero", "0"});
  EXPECT_EQ(none.code, 20) << none.err;
  EXPECT_THAT(none.out, HasSubstr("lacks"));
  EXPECT_THAT(none.out,
              HasSubstr("left out: 1 stage, ZeRO 0: --ranks: the batch has 2 rows, fewer than 3 ranks"));
  const Ran cards = run({"plan", "--gpu", "4090,t4", "gpt2", "--ranks", "2", "--stages", "auto"});
  EXPECT_EQ(cards.code, 2);
  EXPECT_THAT(cards.err, HasSubstr("--stages auto and --zero auto are for one card"));
  EXPECT_THAT(run({"plan", "--gpu", "4090", "t5-small", "--ranks", "2", "--stages", "auto"}).out,
              HasSubstr("→       1         2     0"));
  EXPECT_THAT(run({"estimate", "gpt2", "--ranks", "2", "--stages", "auto"}).err,
              HasSubstr("--stages: 'auto' is no number from 1 to 65536"));
}

TEST_F(PlanCommand, PrecisionAndOptimizerAreOfTheTrainer) {
  const auto best = [this](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--gpu", "a100-80gb", "gpt2-medium", "--floor", "bit_exact"};
    words.insert(words.end(), more.begin(), more.end());
    return data(words)["best"];
  };
  const nlohmann::json plain = best({}), tf32 = best({"--precision", "tf32"}),
                       sgd = best({"--optimizer", "sgd"});
  EXPECT_EQ(tf32["device_peak_bytes"], plain["device_peak_bytes"]);
  EXPECT_GT(tf32["tokens_per_second"], plain["tokens_per_second"]);
  EXPECT_LT(sgd["device_peak_bytes"], plain["device_peak_bytes"]);
  const Ran ran = run({"plan", "--gpu", "4090", "gpt2", "--precision", "tf32", "--optimizer", "adafactor",
                       "--toml", "plan.toml"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(config("plan.toml").train.numerics,
            (trainer::Numerics{trainer::Precision::kTf32, trainer::OptimizerKind::kAdafactor}));
}

TEST_F(PlanCommand, OfSeveralCardsEachHasARow) {
  const Ran ran = run({"plan", "--gpu", "24GiB,4090,80GiB", "gpt2-medium"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* card : {"24.00 GiB", "rtx4090-24gb", "80.00 GiB"}) EXPECT_THAT(ran.out, HasSubstr(card));
  const Ran small = run({"plan", "--gpu", "24GiB,700MiB", "gpt2-medium"});
  EXPECT_EQ(small.code, 20) << "one of them is too small";
  EXPECT_THAT(small.out, HasSubstr("lacks"));
}

TEST_F(PlanCommand, ThePictureHasABarForEachRow) {
  const Ran ran = run({"plan", "--gpu", "5GiB", "gpt2-medium", "--all", "--svg", "plan.svg"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string svg = read("plan.svg");
  EXPECT_THAT(svg, HasSubstr("lacks"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, data({"--gpu", "5GiB", "gpt2-medium"})["alternatives"].size());
}

TEST_F(PlanCommand, AnswersWrongUsage) {
  const auto refused = [this](std::vector<std::string> words, const std::string& why, int code) {
    words.insert(words.begin(), "plan");
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, code) << why << ran.out;
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({"gpt2"}, "--gpu is required", 2);
  refused({"--gpu", "4090"}, "MODEL is required", 2);
  refused({"--gpu", "4091", "gpt2"}, "'4091' is no card", 2);
  refused({"--gpu", "a100", "gpt2"}, "a100-40gb a100-80gb", 2);
  refused({"--gpu", "4090,a100", "gpt2"}, "a100-40gb a100-80gb", 2);
  refused({"--gpu", "4090", "gpt2", "--precision", "fp8"}, "fp8", 2);
  refused({"--gpu", ",", "gpt2"}, "is no card", 2);
  refused({"--gpu", "4090,t4", "gpt2", "--json"}, "are for one card", 2);
  refused({"--gpu", "4090", "--gpus", "0", "gpt2"}, "--gpus", 2);
  refused({"--gpu", "4090", "--gpus", "17", "gpt2"}, "--gpus", 2);
  refused({"--gpu", "4090", "gpt2", "--host-memory", "much"}, "--host-memory", 2);
  refused({"--gpu", "4090", "gpt2", "--floor", "statistics"}, "statistics", 2);
  refused({"--gpu", "4090", "gpt2", "--tolm", "x"}, "Did you mean '--toml'?", 2);
  refused({"--gpu", "4090", "gpt2", "--dropout", "nan"}, "'nan' is no number", 2);
  refused({"--gpu", "4090", "gpt2", "--ranks", "2", "--network", "nan"}, "'nan' is no number", 2);
  refused({"--gpu", "4090", "gpt2", "--toml", ""}, "--toml is empty", 2);
  refused({"--gpu", "4090", "no_model.json"}, "no file or folder", 2);
  refused({"--gpu", "4090", "gpt2", "--toml", "none/plan.toml"}, "cannot be written", 4);
}

TEST_F(PlanCommand, WhateverItIsGivenItAnswers) {
  std::mt19937 random(5);
  const std::vector<std::string> words = {
      "gpt2",   "smollm2-135m", "",          "-1", "0",       "1TiB",          "1B",        "--gpu", "4090",
      "--gpu",  "20GiB",        "--gpus",    "2",  "--batch", "--toml",        "x.toml",    "--svg", "/",
      "--json", "--floor",      "bit_exact", "--", "\xff",    "--host-memory", "--context", "16"};
  for (int i = 0; i < (kSanitized ? 30 : 120); ++i) {
    std::vector<std::string> line{"plan"};
    for (size_t count = random() % 8; count > 0; --count) line.push_back(words[random() % words.size()]);
    const Ran ran = run(line);
    ASSERT_THAT(ran.code, AnyOf(0, 2, 3, 4, 20)) << ::testing::PrintToString(line) << ran.err;
    ASSERT_EQ(ran.code == 0 || ran.code == 20, ran.err.empty()) << ::testing::PrintToString(line) << ran.err;
  }
}

}  // namespace
}  // namespace spillway::tools
