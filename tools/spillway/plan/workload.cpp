#include "tools/spillway/plan/workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/command_line/option_checks.h"
#include "tools/spillway/command.h"
#include "tools/spillway/plan/known_models.h"
#include "tools/spillway/suggest.h"
#include "trainer/config/config.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/pretrained/hugging_face_config.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kBatch = 8;  // where nothing says another

bool fail_with(int exit_code, std::string text, int* code, std::string* error) {
  *code = exit_code;
  *error = std::move(text);
  return false;
}

std::string near_names(const std::string& model) {
  std::string text = did_you_mean(model, known_model_names());
  if (!text.empty()) return text;
  const std::vector<std::string> alike = models_named_like(model);
  if (alike.empty()) return "";
  for (const std::string& name : alike) text += (text.empty() ? " Did you mean '" : " or '") + name + "'";
  return text + "?";
}

// A model keeps what it was made for: a GPT-2 has its whole table of positions.
bool read_known(const WorkloadOptions& options, Workload* workload, int* code, std::string* error) {
  const auto model = known_model(options.model);
  if (!model) {
    std::string text = "'" + options.model + "' is no file or folder, and no model that is known by name." +
                       near_names(options.model) + " Known are";
    for (const std::string& name : known_model_names()) text += " " + name;
    return fail_with(kUsageError, text, code, error);
  }
  workload->shape.model = *model;
  const uint32_t context = options.context.value_or(model->context);
  if (context > model->context && !model->has_decoder())
    return fail_with(
        kUsageError,
        "--context: " + options.model + " has at most " + std::to_string(model->context) + " tokens", code,
        error);
  if (context != model->context) workload->shape.model.pretrained_context = model->context;
  workload->shape.model.context = context;
  return true;
}

bool read_hugging_face(const WorkloadOptions& options, const fs::path& file, Workload* workload, int* code,
                       std::string* error) {
  const auto model = trainer::read_hugging_face_config(file.string(), options.context.value_or(0), error);
  if (!model) return fail_with(kUnreadableTrace, *error, code, error);
  workload->source = ModelSource::kHuggingFace;
  workload->path = file.parent_path().empty() ? "." : file.parent_path().string();
  workload->shape.model = *model;
  // As a training of it would have; one that must be told its dropout is counted without.
  const auto dropout = trainer::read_hugging_face_dropout(file.string(), error);
  if (!dropout) return fail_with(kUnreadableTrace, *error, code, error);
  if (dropout->fault.empty()) workload->shape.model.dropout = dropout->rate;
  return true;
}

bool read_trainer_config(const WorkloadOptions& options, Workload* workload, int* code, std::string* error) {
  std::vector<std::string> overrides;
  if (options.context) overrides.push_back("model.context=" + std::to_string(*options.context));
  const auto config = trainer::read_config(options.model, overrides, error);
  if (!config) return fail_with(kUnreadableTrace, *error, code, error);
  workload->source = ModelSource::kTrainerConfig;
  workload->path = options.model;
  workload->shape = config->shape();
  if (config->run.stages > 1) workload->stage_layers = config->stage_layers();
  workload->plan = config->plan;
  workload->spread = config->spread;
  workload->devices = config->run.devices;
  workload->floor = config->recovery.floor;
  return true;
}

bool read_model(const WorkloadOptions& options, Workload* workload, int* code, std::string* error) {
  std::error_code ignored;
  const fs::path path = options.model;
  if (fs::is_directory(path, ignored))
    return read_hugging_face(options, path / "config.json", workload, code, error);
  if (!fs::exists(path, ignored)) return read_known(options, workload, code, error);
  if (path.extension() == ".toml") return read_trainer_config(options, workload, code, error);
  return read_hugging_face(options, path, workload, code, error);
}

// Floats that a step could have alive, generously; beyond 2^50 byte counts of 64 bits might not hold a sum.
bool can_be_counted(const trainer::Shape& shape, uint32_t evaluation_batch) {
  const trainer::Architecture& model = shape.model;
  const double rows = std::max(shape.batch, evaluation_batch),
               tokens = std::max(model.context, model.target_tokens());
  const double of_layer = 32.0 * (model.width + 3.0 * model.query_width() + model.hidden) +
                          (model.has_decoder() ? 8.0 * model.heads * tokens : 0);
  return rows * tokens * (3.0 * model.vocabulary + shape.layers() * of_layer) < 0x1p50;
}

template <typename Value, size_t N>
std::vector<std::string> names_of(const Value (&known)[N]) {
  std::vector<std::string> names;
  for (const Value value : known) names.emplace_back(trainer::name_of(value));
  return names;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void choose_numerics(const WorkloadOptions& options, trainer::Numerics* numerics) {
  numerics->precision = trainer::precision_of(options.precision).value_or(numerics->precision);
  numerics->optimizer = trainer::optimizer_of(options.optimizer).value_or(numerics->optimizer);
}

}  // namespace

void declare_workload(CLI::App& app, WorkloadOptions* options) {
  const auto rows = CLI::Range(1u, 1u << 20);
  app.add_option(
         "MODEL", options->model,
         "A folder with a config.json, a config.json, a configuration of spillway-train (.toml), or a known "
         "name such as gpt2-xl")
      ->required();
  app.add_option("--batch", options->batch, "Rows of an optimizer step (8, or the configuration's)")
      ->check(rows);
  app.add_option("--context", options->context, "Tokens of a row (the model's own)")->check(rows);
  app.add_option("--micro-batch", options->micro_batch, "Rows of one forward and backward (the batch)")
      ->check(rows);
  app.add_option("--evaluation-batch", options->evaluation_batch,
                 "Rows of an evaluation's forward (the micro-batch)")
      ->check(rows);
  app.add_option("--dropout", options->dropout, "Share that is dropped (0, or the configuration's)")
      ->check(number_between(0.0, 0.9));
  app.add_option(
         "--precision", options->precision,
         "As train.precision (fp32, or the configuration's): " + list_of(names_of(trainer::kPrecisions)))
      ->check(CLI::IsMember(names_of(trainer::kPrecisions)));
  app.add_option(
         "--optimizer", options->optimizer,
         "As train.optimizer (adamw, or the configuration's): " + list_of(names_of(trainer::kOptimizers)))
      ->check(CLI::IsMember(names_of(trainer::kOptimizers)));
}

std::optional<Workload> read_workload(const WorkloadOptions& options, int* code, std::string* error) {
  Workload workload;
  workload.name = options.model;
  workload.shape.batch = 0;
  if (!read_model(options, &workload, code, error)) return std::nullopt;
  const bool has_plan = workload.source == ModelSource::kTrainerConfig;
  uint32_t& batch = workload.shape.batch;
  if (options.batch || batch == 0) batch = options.batch.value_or(kBatch);
  trainer::Plan& plan = workload.plan;
  if (!has_plan || options.batch) plan.micro_batch = plan.evaluation_batch = batch;
  if (options.micro_batch) plan.micro_batch = plan.evaluation_batch = *options.micro_batch;
  plan.evaluation_batch = options.evaluation_batch.value_or(plan.evaluation_batch);
  workload.evaluation_follows =
      !options.evaluation_batch && (!has_plan || options.batch || options.micro_batch);
  choose_numerics(options, &workload.shape.numerics);
  workload.shape.model.dropout = options.dropout.value_or(workload.shape.model.dropout);
  std::string fault = trainer::fault_of(workload.shape.model);
  if (options.micro_batch && *options.micro_batch > batch)
    fault = "--micro-batch " + std::to_string(*options.micro_batch) + " is more than the batch, " +
            std::to_string(batch) + " (--batch)";
  if (fault.empty()) fault = fault_of_size(workload);
  if (fault.empty()) return workload;
  fail_with(kUsageError, fault, code, error);
  return std::nullopt;
}

std::string fault_of_size(const Workload& workload) {
  if (can_be_counted(workload.shape, workload.plan.evaluation_batch)) return "";
  return workload.name + ": the batch, the context and the model together are too large to count";
}

std::string workload_text(const Workload& workload) {
  const trainer::Architecture& model = workload.shape.model;
  char text[192];
  const double parameters = double(trainer::parameter_count(model));
  std::snprintf(text, sizeof text, ": a %s of %.*f %s parameters; a step is %u rows of %u tokens, %s, %s",
                trainer::name_of(model.family), parameters < 1e9 ? 1 : 2,
                parameters < 1e9 ? parameters / 1e6 : parameters / 1e9,
                parameters < 1e9 ? "million" : "billion", workload.shape.batch, model.context,
                trainer::name_of(workload.shape.numerics.precision),
                trainer::name_of(workload.shape.numerics.optimizer));
  return workload.name + text;
}

}  // namespace spillway::tools
