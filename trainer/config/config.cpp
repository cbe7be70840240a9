#include "trainer/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/printed.h"
#include "trainer/config/idle_settings.h"
#include "trainer/config/overrides.h"
#include "trainer/config/plan_fault.h"
#include "trainer/config/stages.h"
#include "trainer/data/examples.h"
#include "trainer/plan/devices/peers.h"
#include "trainer/plan/parameters/partition.h"
#include "trainer/plan/stages/stage.h"
#include "trainer/plan/toml/plan_toml.h"
#include "trainer/pretrained/hugging_face_config.h"

namespace spillway::trainer {
namespace {

constexpr uint32_t kMostOfBytes = 384;  // tokens of a vocabulary of bytes: ByT5's
constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();

// Reads the sections one after the other; the first error ends it.
class ConfigReader {
 public:
  ConfigReader(const toml::table& document, Config* config) : root_(document, ""), config_(*config) {}

  std::string read() {
    section("model", [this](StrictTable& table) { read_model(table); });
    section("data", [this](StrictTable& table) { read_data(table); });
    section("train", [this](StrictTable& table) { read_train(table); });
    section("evaluation", [this](StrictTable& table) {
      table.integer("every", &config_.evaluation.every, 0);
      table.integer("windows", &config_.evaluation.windows, 1, 1 << 20);
    });
    section("run", [this](StrictTable& table) { read_run(table); });
    section("recovery", [this](StrictTable& table) { read_recovery(table); });
    config_.plan.micro_batch = config_.train.batch;
    config_.plan.evaluation_batch = config_.train.batch;
    section("plan", [this](StrictTable& table) { read_plans(table); });
    if (!error_.empty()) return error_;
    return root_.finish() ? check() : root_.error();
  }

 private:
  template <typename Read>
  void section(std::string_view name, const Read& read) {
    const toml::table* found = root_.table(name);
    if (!found || !error_.empty()) return;
    StrictTable table(*found, std::string(name));
    read(table);
    if (error_.empty() && !table.finish()) error_ = table.error();
  }

  void read_model(StrictTable& table) {
    table.text("pretrained", &config_.pretrained);
    config_.pretrained.empty() ? read_new_model(table) : read_pretrained_model(table);
    table.number("dropout", &config_.model.dropout, 0, 0.9);
  }

  void read_pretrained_model(StrictTable& table) {
    for (const char* key : {"family", "layers", "decoder_layers", "width", "heads", "key_value_heads",
                            "head_width", "hidden", "vocabulary", "positions", "gated", "tied_head"})
      if (const toml::node* node = table.node(key))
        return table.fail(
            *node, "'model." + std::string(key) + "' comes from the config.json of 'model.pretrained'");
    uint32_t context = 0;
    read_lengths(table, &context);
    const auto model = read_hugging_face_config(config_.pretrained + "/config.json", context, &error_);
    if (model) config_.model = *model;
    config_.model.target = target_;
    if (model && !table.node("dropout")) take_dropout(table);
  }

  // As transformers trains the model, where one rate can say it.
  void take_dropout(StrictTable& table) {
    const std::string path = config_.pretrained + "/config.json";
    const auto found = read_hugging_face_dropout(path, &error_);
    if (!found) return;
    config_.model.dropout = found->rate;
    if (!found->fault.empty())
      return table.fail(*table.node("pretrained"),
                        path + ": " + found->fault +
                            ", and the trainer has one rate, of the embeddings and of what a layer adds: set "
                            "'model.dropout' (0: none)");
    if (!found->left_out.empty())
      config_.remarks.push_back(path + ": " + found->left_out + "; 'model.dropout' sets the rest (" +
                                printed("%g", found->rate) + ")");
  }

  void read_lengths(StrictTable& table, uint32_t* context) {
    table.integer("context", context, 1, 1 << 20);
    table.integer("target", &target_, 1, 1 << 20);
    context_is_given_ = table.node("context") != nullptr;
  }

  void read_new_model(StrictTable& table) {
    Architecture& model = config_.model;
    std::string family = name_of(model.family);
    uint32_t layers = model.layers, width = model.width, heads = model.heads, context = model.context;
    choice(table, "family", &family, {"gpt2", "llama", "t5"});
    table.integer("layers", &layers, 1, 1000);
    table.integer("width", &width, 1, 1 << 16);
    table.integer("heads", &heads, 1, 1 << 10);
    read_lengths(table, &context);
    model = Architecture::usual(family_of(family).value_or(model.family), layers, width, heads, context);
    model.target = target_;
    // What is said apart from the family's usual.
    table.integer("decoder_layers", &model.decoder_layers, 0, 1000);
    table.integer("key_value_heads", &model.key_value_heads, 1, 1 << 10);
    table.integer("head_width", &model.head_width, 1, 1 << 16);
    table.integer("hidden", &model.hidden, 1, 1 << 18);
    table.integer("vocabulary", &model.vocabulary, 1, 1 << 24);
    vocabulary_is_given_ = table.node("vocabulary") != nullptr;
    read_positions(table);
    table.boolean("gated", &model.gated);
    table.boolean("tied_head", &model.tied_head);
  }

  // Of a gpt2 that is trained on shorter texts than it has positions for.
  void read_positions(StrictTable& table) {
    Architecture& model = config_.model;
    uint32_t positions = model.context;
    table.integer("positions", &positions, 1, 1 << 24);
    const toml::node* node = table.node("positions");
    if (node && model.family != Family::kGpt2)
      return table.fail(*node, "'model.positions' is for a gpt2: the others have no table of positions");
    if (positions != model.context) model.pretrained_context = positions;
  }

  void read_data(StrictTable& table) {
    table.text("corpus", &config_.data.corpus);
    table.number("validation", &config_.data.validation, 0.001, 0.9);
    table.integer("seed", &config_.data.seed, 0, kMost64);
    table.integer("workers", &config_.data.workers, 0, 64);
    table.integer("ahead", &config_.data.ahead, 1, 1024);
  }

  void read_train(StrictTable& table) {
    TrainConfig& train = config_.train;
    table.integer("steps", &train.steps, 1);
    table.integer("seed", &train.seed, 0, kMost64);
    table.integer("batch", &train.batch, 1, 1 << 20);
    table.number("learning_rate", &train.learning_rate, 0, 10);
    table.number("minimum_learning_rate", &train.minimum_learning_rate, 0, 10);
    table.number("weight_decay", &train.weight_decay, 0, 10);
    table.number("beta1", &train.beta1, 0, 0.999999);
    table.number("beta2", &train.beta2, 0, 0.999999);
    table.number("epsilon", &train.epsilon, 1e-30, 1);
    table.number("clip", &train.clip, 0, 1e9);
    table.integer("warmup", &train.warmup, 0);
    table.integer("offload_least_bytes", &train.offload_least_bytes, 1);
    read_numerics(table);
    table.number("momentum", &train.momentum, 0, 0.999999);
    table.number("loss_scale", &train.loss_scale, 1, 0x1p40);
    table.integer("loss_scale_interval", &train.loss_scale_interval, 1);
  }

  void read_numerics(StrictTable& table) {
    Numerics& numerics = config_.train.numerics;
    std::string precision = name_of(numerics.precision), optimizer = name_of(numerics.optimizer);
    choice(table, "precision", &precision, names_of(kPrecisions));
    choice(table, "optimizer", &optimizer, names_of(kOptimizers));
    numerics = {precision_of(precision).value_or(numerics.precision),
                optimizer_of(optimizer).value_or(numerics.optimizer)};
  }

  template <typename Value, size_t N>
  static std::vector<std::string> names_of(const Value (&known)[N]) {
    std::vector<std::string> names;
    for (const Value value : known) names.emplace_back(name_of(value));
    return names;
  }

  void read_run(StrictTable& table) {
    RunConfig& run = config_.run;
    table.text("out", &run.out);
    table.text("save", &run.save);
    choice(table, "device", &run.device, {"cuda", "cpu"});
    choice(table, "allocator", &run.allocator, {"spillway", "native"});
    table.integer("devices", &run.devices, 0, 64);
    table.integer("threads", &run.threads, 0, 4096);
    table.boolean("deterministic", &run.deterministic);
    table.integer("checkpoint_every", &run.checkpoint_every, 0);
    choice(table, "log_level", &run.log_level, {"debug", "info", "warning", "error"});
    table.integer("ranks_timeout", &run.ranks_timeout, 1, 1 << 30);
    table.integer("zero", &run.zero, 0, 3);
    table.integer("stages", &run.stages, 1, 1 << 16);
    read_stage_layers(table);
    table.number("ranks_bound", &run.ranks_bound, 0, 1 << 30);
    table.number("ranks_beat", &run.ranks_beat, 0.05, 3600);
    table.boolean("log_json", &run.log_json);
    table.boolean("tensorboard", &run.tensorboard);
    table.text("nvme", &run.nvme);
    read_bytes(table, "limit", "2147483648 or \"2GiB\"", &run.limit_bytes);
    read_bytes(table, "nvme_least", "1048576 or \"1MiB\"", &run.nvme_least_bytes);
  }

  void read_stage_layers(StrictTable& table) {
    const toml::array* counts = table.array("stage_layers");
    if (!counts) return;
    for (const toml::node& node : *counts) {
      const auto* count = node.as_integer();
      if (!count || count->get() < 1 || count->get() > 1 << 16)
        return table.fail(*counts,
                          "'run.stage_layers' must be how many layers each stage has, such as [6, 6]");
      config_.run.stage_layers.push_back(uint32_t(count->get()));
    }
  }

  static void read_bytes(StrictTable& table, const std::string& key, const char* such_as, uint64_t* bytes) {
    const toml::node* node = table.node(key);
    if (!node) return;
    std::optional<uint64_t> read;
    if (const auto* text = node->as_string())
      read = parse_bytes(text->get());
    else if (const auto* number = node->as_integer(); number != nullptr && number->get() >= 0)
      read = static_cast<uint64_t>(number->get());
    if (read)
      *bytes = *read;
    else
      table.fail(*node, "'run." + key + "' must be bytes, such as " + such_as);
  }

  void read_recovery(StrictTable& table) {
    RecoveryOptions& recovery = config_.recovery;
    std::string floor = name_of(recovery.floor);
    choice(table, "floor", &floor, {"bit_exact", "numerically_equal", "statistics_change"});
    for (const Guarantee guarantee :
         {Guarantee::kBitExact, Guarantee::kNumericallyEqual, Guarantee::kStatisticsChange})
      if (floor == name_of(guarantee)) recovery.floor = guarantee;
    table.integer("attempts", &recovery.attempts, 1, 1000);
    grow_back_is_given_ = table.node("grow_back_after") != nullptr;
    table.integer("grow_back_after", &recovery.grow_back_after, 0);
    table.number("grow_back_headroom", &recovery.grow_back_headroom, 0, 0.9);
  }

  void read_plans(StrictTable& table) {
    table.boolean("automatic", &config_.automatic_plan);
    const uint32_t decoder_layers = config_.model.decoder_layers;
    read_plan(table, config_.model.all_layers(), &config_.plan,
              {&config_.automatic_micro_batch, &config_.spread, decoder_layers});
    DeviceSpread spread = config_.spread;
    const toml::array* entries = table.array("schedule");
    if (!entries) return;
    if (config_.automatic_plan || config_.automatic_micro_batch)
      return table.fail(*entries,
                        std::string(config_.automatic_plan ? "'plan.automatic'" : "'plan.micro_batch'") +
                            " chooses the plan, and 'plan.schedule' says it: keep one");
    for (const toml::node& node : *entries) {
      if (!node.is_table()) return table.fail(node, "'plan.schedule' must be written as [[plan.schedule]]");
      StrictTable entry(*node.as_table(), "plan.schedule");
      int64_t step = -1;
      Plan plan = config_.schedule.empty() ? config_.plan : config_.schedule.rbegin()->second;
      entry.integer("step", &step, 0);
      read_plan(entry, config_.model.all_layers(), &plan, {nullptr, &spread, decoder_layers});
      if (!entry.finish()) return void(error_ = error_.empty() ? entry.error() : error_);
      if (step < 0 || (!config_.schedule.empty() && config_.schedule.rbegin()->first >= uint64_t(step)))
        return table.fail(node, "each [[plan.schedule]] needs a 'step' that is later than the one before");
      config_.schedule[uint64_t(step)] = plan;
      if (spread != DeviceSpread::kGiven) config_.scheduled_spreads[uint64_t(step)] = spread;
    }
  }

  static void choice(StrictTable& table, std::string_view key, std::string* value,
                     const std::vector<std::string>& known) {
    std::string read = *value;
    table.text(key, &read);
    for (const std::string& candidate : known)
      if (read == candidate) return void(*value = read);
    std::string all;
    for (const std::string& candidate : known) all += (all.empty() ? "\"" : "\" or \"") + candidate;
    table.fail(*table.node(key), "'" + std::string(key) + "' must be " + all + "\", not \"" + read + "\"");
  }

  // What the sections must agree on.
  std::string check() {
    if (config_.data.corpus.empty()) return "'data.corpus' is missing: the path of a text to train on";
    std::string error;
    const auto vocabulary = Corpus::vocabulary_of(config_.data.corpus, &error);
    if (vocabulary && vocabulary->of_pairs()) take_lengths(*vocabulary);
    if (const std::string fault = fault_of(config_.model); !fault.empty()) return fault;
    if (config_.run.zero > 0 && !can_be_sharded(config_.train.numerics))
      return "'run.zero' cuts the optimizer's states into shares, and adafactor's means of rows and columns "
             "belong to whole matrices: take another 'train.optimizer', or 'run.zero = 0'";
    if (config_.run.zero > 2 && config_.train.numerics.precision == Precision::kInt8)
      return "'run.zero' = 3 has no shares of matrices in 8 bits: take run.zero = 2, or another "
             "'train.precision'";
    if (const std::string fault = fault_of_stages(config_); !fault.empty()) return fault;
    if (const std::string fault = fault_of_plans(); !fault.empty()) return fault;
    if (config_.automatic_micro_batch) config_.plan.micro_batch = config_.train.batch;
    if (config_.chooses_plan() && !grow_back_is_given_) config_.recovery.grow_back_after = kGrowBackAfter;
    if (!vocabulary) return error;
    // The tokens of the corpus are the vocabulary of a new model, unless it says another.
    if (!vocabulary->of_bytes && !vocabulary_is_given_ && config_.pretrained.empty())
      config_.model.vocabulary = vocabulary->size;
    // A plan of pairs needs their lengths alone; a training says that the file is missing.
    std::error_code ignored;
    if (config_.model.has_pairs() && !std::filesystem::exists(config_.data.corpus, ignored)) return "";
    if (vocabulary->of_bytes && !config_.pretrained.empty()) remark_on_bytes();
    return Examples::fault_of(config_.model, *vocabulary);
  }

  void remark_on_bytes() {
    if (config_.model.vocabulary <= kMostOfBytes) return;
    config_.remarks.push_back(
        "'data.corpus' is a text, whose bytes are the tokens: the weights of 'model.pretrained', of a "
        "vocabulary of " +
        std::to_string(config_.model.vocabulary) +
        ", know other tokens; make a file of them with python -m spillway.tokenize");
  }

  std::string fault_of_plans() const {
    const auto fault_of = [&](const Plan& plan, const std::string& section) {
      return fault_of_plan(plan, config_.train.numerics, config_.shared_work(), section);
    };
    std::string fault = fault_of(config_.plan, "plan");
    for (const auto& [step, plan] : config_.schedule)
      if (fault.empty()) fault = fault_of(plan, "plan.schedule (step " + std::to_string(step) + ")");
    return fault;
  }

  // Of pairs; what the configuration does not say.
  void take_lengths(const Vocabulary& pairs) {
    Architecture& model = config_.model;
    if (!model.has_decoder()) return;
    if (!context_is_given_) {
      if (!config_.pretrained.empty() && pairs.longest_source < model.context)
        model.pretrained_context = model.context;
      model.context = pairs.longest_source;
    }
    if (!model.has_pairs()) model.target = pairs.longest_target;
  }

  StrictTable root_;
  Config& config_;
  uint32_t target_ = 0;
  bool context_is_given_ = false;
  bool vocabulary_is_given_ = false, grow_back_is_given_ = false;
  std::string error_;
};

// "section.key" of each.
std::set<std::string> keys_of(const toml::table& document) {
  std::set<std::string> keys;
  for (const auto& [section, node] : document)
    if (const toml::table* table = node.as_table())
      for (const auto& [key, value] : *table)
        keys.insert(std::string(section.str()) + "." + std::string(key.str()));
  return keys;
}

}  // namespace

std::vector<uint32_t> Config::stage_layers() const {
  return run.stage_layers.empty() ? balanced_layers(model, run.stages) : run.stage_layers;
}

Shape Config::shape() const {
  return {.model = model,
          .batch = train.batch,
          .numerics = train.numerics,
          .offload_least_bytes = train.offload_least_bytes,
          .zero = run.zero};
}

void Config::place_layers(const Machine& machine) {
  if (spread != DeviceSpread::kGiven) plan.placement = device_map(spread, shape(), plan, machine);
  for (const auto& [step, how] : scheduled_spreads) {
    Plan& scheduled = schedule.at(step);
    scheduled.placement = device_map(how, shape(), scheduled, machine);
  }
  choose_peers(&plan, shape(), machine);
  for (auto& [step, scheduled] : schedule) choose_peers(&scheduled, shape(), machine);
}

std::optional<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides,
                                   std::string* error) {
  auto parsed = parse_toml(text, error);
  if (!parsed) return std::nullopt;
  toml::table document = std::move(*parsed);
  for (const std::string& override : overrides)
    if (!apply_override(override, &document, error)) return std::nullopt;
  Config config;
  *error = ConfigReader(document, &config).read();
  if (!error->empty()) return std::nullopt;
  std::ranges::move(idle_settings(config, keys_of(document)), std::back_inserter(config.remarks));
  return config;
}

std::optional<Config> read_config(const std::string& path, const std::vector<std::string>& overrides,
                                  std::string* error) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    *error = path + ": cannot be read: " + (errno != 0 ? std::strerror(errno) : "it is empty");
    return std::nullopt;
  }
  auto config = parse_config(text.str(), overrides, error);
  if (!config && !error->starts_with("--set ")) *error = path + ": " + *error;
  return config;
}

}  // namespace spillway::trainer
