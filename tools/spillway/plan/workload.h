// What `estimate` and `plan` look at: a model and a batch, from wherever the user has them.
//
// Thread-safety: plain values; files are read. Errors: a text that names the option, or the file and its key,
// and an exit code. Units: rows and tokens.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/device_map.h"
#include "trainer/plan/estimate.h"

namespace CLI {
class App;
}

namespace spillway::tools {

struct WorkloadOptions {
  std::string model;  // a folder, a config.json, a configuration of spillway-train, or a known name
  std::optional<uint32_t> batch, context, micro_batch, evaluation_batch;
  std::optional<double> dropout;
  std::string precision,
      optimizer;  // train.precision and train.optimizer; "": fp32 and adamw, or the configuration's
};

void declare_workload(CLI::App& app, WorkloadOptions* options);

enum class ModelSource : uint8_t { kKnownName, kHuggingFace, kTrainerConfig };

struct Workload {
  std::string name;  // as the user gave it
  ModelSource source{};
  std::string path;  // of the folder, or of the configuration
  trainer::Shape shape;
  uint32_t rows_of_all = 0;              // of a step of all ranks, where `shape` has those of one; else 0
  std::vector<uint32_t> stage_layers{};  // of each stage, where the ranks are those of a pipeline
  uint32_t all_ranks() const { return shape.ranks * std::max<uint32_t>(1, uint32_t(stage_layers.size())); }
  bool evaluation_follows = false;  // an evaluation's forward has the rows of a micro-batch
  trainer::Plan plan;               // of the configuration, else one micro-batch
  // How the configuration spreads the plan's layers, where it does not place them, and over how many devices;
  // 0: all.
  trainer::DeviceSpread spread = trainer::DeviceSpread::kGiven;
  uint32_t devices = 0;
  trainer::Guarantee floor = trainer::Guarantee::kNumericallyEqual;
};

// Nothing, with an ExitCode and a text, where there is no such model or it is too large to count.
std::optional<Workload> read_workload(const WorkloadOptions& options, int* code, std::string* error);

// "": its bytes can be counted; else that it is too large.
std::string fault_of_size(const Workload& workload);

// "llama-3-8b: a llama of 8.03 billion parameters, 8 rows of 8192 tokens a step, fp32, adamw"
std::string workload_text(const Workload& workload);

}  // namespace spillway::tools
