// The best plan as a configuration of spillway-train.
#include <fstream>
#include <sstream>

#include "tools/spillway/plan/planned.h"
#include "trainer/plan/toml/strict_table.h"

namespace spillway::tools {
namespace {

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string model_section(const Workload& workload) {
  const trainer::Architecture& model = workload.shape.model;
  std::ostringstream out;
  if (workload.source == ModelSource::kHuggingFace) {
    out << "pretrained = " << quoted(workload.path) << "\ncontext = " << model.context << "\n";
  } else {
    out << "family = \"" << name_of(model.family) << "\"\nlayers = " << model.layers;
    if (model.has_decoder()) out << "\ndecoder_layers = " << model.decoder_layers;
    out << "\nwidth = " << model.width << "\nheads = " << model.heads
        << "\nkey_value_heads = " << model.key_value_heads << "\nhead_width = " << model.head_width
        << "\nhidden = " << model.hidden << "\ncontext = " << model.context;
    if (model.family == trainer::Family::kGpt2) out << "\npositions = " << model.positions();
    out << "\nvocabulary = " << model.vocabulary << "\ngated = " << (model.gated ? "true" : "false")
        << "\ntied_head = " << (model.tied_head ? "true" : "false") << "\n";
  }
  // A config.json may have more rates than the trainer's one.
  if (model.dropout > 0 || workload.source == ModelSource::kHuggingFace)
    out << "dropout = " << toml::value<double>(model.dropout) << "\n";
  return out.str();
}

uint32_t rows_of_a_step(const Workload& workload) {
  return workload.rows_of_all > 0 ? workload.rows_of_all : workload.shape.batch;
}

std::string new_configuration(const PlanReport& report, const trainer::Plan& plan) {
  const std::string mesh = run_of_mesh(report.workload);
  return "[model]\n" + model_section(report.workload) +
         "\n[data]\ncorpus = \"corpus.txt\"\n\n[train]\nbatch = " +
         std::to_string(rows_of_a_step(report.workload)) + "\nprecision = \"" +
         name_of(report.workload.shape.numerics.precision) + "\"\noptimizer = \"" +
         name_of(report.workload.shape.numerics.optimizer) + "\"" +
         "\n\n[run]\ndevices = " + std::to_string(report.machine.devices) +
         (mesh.empty() ? "" : "\n" + mesh) + "\n\n[plan]\n" + to_toml(plan);
}

template <typename Value>
void set_in(toml::table* document, const char* section, const char* key, Value value) {
  if (!document->contains(section)) document->insert_or_assign(section, toml::table{});
  if (toml::table* table = document->get_as<toml::table>(section)) table->insert_or_assign(key, value);
}

// `run` is there: it has the devices.
void set_mesh(const Workload& workload, toml::table* run) {
  for (const char* key : {"zero", "stages", "stage_layers"}) run->erase(key);
  if (workload.shape.zero > 0) run->insert_or_assign("zero", int64_t{workload.shape.zero});
  if (workload.stage_layers.empty()) return;
  toml::array layers;
  for (const uint32_t count : workload.stage_layers) layers.push_back(int64_t{count});
  run->insert_or_assign("stages", int64_t(workload.stage_layers.size()));
  run->insert_or_assign("stage_layers", std::move(layers));
}

}  // namespace

std::string run_of_mesh(const Workload& workload) {
  std::string zero = workload.shape.zero > 0 ? "zero = " + std::to_string(workload.shape.zero) : "";
  if (workload.stage_layers.empty()) return zero;
  std::string layers;
  for (const uint32_t count : workload.stage_layers)
    layers += (layers.empty() ? "" : ", ") + std::to_string(count);
  return zero + (zero.empty() ? "" : "\n") + "stages = " + std::to_string(workload.stage_layers.size()) +
         "\nstage_layers = [" + layers + "]";
}

std::string planned_toml(const PlanReport& report, std::string* error) {
  if (!report.planned.best) return *error = "no plan fits", "";
  const trainer::Plan& best = report.planned.best->plan;
  const Workload& workload = report.workload;
  const std::string head = "# Made by spillway plan for " + report.gpu.name + ".\n";
  if (workload.source != ModelSource::kTrainerConfig) return head + new_configuration(report, best);
  std::ifstream file(workload.path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  auto document = trainer::parse_toml(text.str(), error);
  const auto plan = trainer::parse_toml(to_toml(best), error);
  if (!document || !plan) return "";
  document->insert_or_assign("plan", *plan);
  set_in(&*document, "train", "batch", int64_t{rows_of_a_step(workload)});
  set_in(&*document, "train", "precision", name_of(workload.shape.numerics.precision));
  set_in(&*document, "train", "optimizer", name_of(workload.shape.numerics.optimizer));
  set_in(&*document, "model", "context", int64_t{workload.shape.model.context});
  set_in(&*document, "model", "dropout", workload.shape.model.dropout);
  set_in(&*document, "run", "devices", int64_t{report.machine.devices});
  set_mesh(workload, document->get_as<toml::table>("run"));
  std::ostringstream out;
  out << head << *document << "\n";
  return out.str();
}

}  // namespace spillway::tools
