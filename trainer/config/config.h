// A training run's configuration: a TOML file, and overrides from the command line.
//
// Every key is optional but data.corpus; a key that is unknown or of the wrong type is an error that names
// its line and the nearest key. Thread-safety: values. Errors: texts for people. Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/device_map.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/ranks/same_sequence.h"
#include "trainer/step/recoverable_step.h"

namespace spillway::trainer {

struct DataConfig {
  std::string corpus;  // a text, whose bytes are the tokens, or a file of tokens or of pairs
  double validation = 0.1;
  uint64_t seed = 1;
  uint32_t workers = 1;  // threads that make batches ahead of the training; 0: it makes them itself
  uint32_t ahead = 2;    // batches that they make ahead
};

struct TrainConfig {
  uint64_t steps = 100, seed = 1;
  uint32_t batch = 8;
  double learning_rate = 1e-3, minimum_learning_rate = 1e-4, weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, clip = 1.0;
  double momentum = 0.9;  // of SGD
  Numerics numerics{};
  double loss_scale = 65536;            // that float16 begins with
  uint64_t loss_scale_interval = 2000;  // updates without an overflow, after which it is doubled
  uint64_t warmup = 20;
  uint64_t offload_least_bytes = kOffloadLeastBytes;  // of what the plan's `offload` takes to the host
};

struct EvaluationConfig {
  uint64_t every = 0;  // steps; 0: only at the end
  uint32_t windows = 32;
};

struct RunConfig {
  std::string out = "runs/last";
  std::string save;             // folder for the weights at the end, as Hugging Face has them; "": none
  std::string device = "cuda";  // or "cpu"
  uint32_t devices = 0;         // of that kind that the plan may use; 0: all
  std::string allocator = "spillway";  // or "native"
  uint64_t limit_bytes = 0;            // of each device; 0: all that it has
  uint32_t threads = 0;                // of the CPU kernels; 0: as many as cores
  bool deterministic = false;          // kernels that repeat themselves alone, where there are faster ones
  uint64_t checkpoint_every = 0;       // steps; 0: only when the run ends early
  std::string log_level = "info";      // the least that is said: "debug", "info", "warning", "error"
  std::string nvme;                    // folder for what the plan puts on an NVMe disk; "": that of `out`
  uint64_t nvme_least_bytes = kLeastOnNvme;  // of a parameter's states that go there
  uint64_t ranks_timeout = 600;              // seconds that ranks wait for each other
  uint32_t zero = 0;                         // the stage of ZeRO: what ranks share in place of having it each
  uint32_t stages = 1;                       // of a pipeline that the ranks are
  std::vector<uint32_t> stage_layers{};      // that each of them has; empty: as balanced_layers has them
  double ranks_bound = 60;   // seconds that a rank may give no sign of life before all end; 0: nobody watches
  double ranks_beat = 2;     // seconds between two signs of life
  bool log_json = false;     // train.jsonl too
  bool tensorboard = false;  // an event file too
};

// Quiet steps after which a run that chose its own plan goes back to it, unless the configuration says
// others.
inline constexpr uint64_t kGrowBackAfter = 16;

struct Config {
  Architecture model = Architecture::usual(Family::kGpt2, 6, 384, 6, 256);
  std::string pretrained;              // folder of the weights to begin with; "": from the seed
  std::vector<std::string> remarks{};  // what a run warns of: settings that mean less than they seem to
  DataConfig data;
  TrainConfig train;
  EvaluationConfig evaluation;
  RunConfig run;
  RecoveryOptions recovery;
  Plan plan;
  bool automatic_plan = false;         // the run plans at its start; `plan` has its batches' bounds
  bool automatic_micro_batch = false;  // the run takes the largest that fits at its start
  std::map<uint64_t, Plan> schedule;   // step → the plan from that step on
  // How the plan spreads its layers, and that of the schedule's steps; a step that is not named gives them.
  DeviceSpread spread = DeviceSpread::kGiven;
  std::map<uint64_t, DeviceSpread> scheduled_spreads;

  // What "even", "balanced" and a peer that is not named mean on this machine.
  void place_layers(const Machine& machine);

  Shape shape() const;
  SharedWork shared_work() const { return {.zero = run.zero, .in_stages = run.stages > 1}; }
  std::vector<uint32_t> stage_layers() const;  // of each stage
  const std::string& nvme_folder() const { return run.nvme.empty() ? run.out : run.nvme; }
  bool chooses_plan() const { return automatic_plan || automatic_micro_batch; }
};

// `overrides` are "section.key=value"; a value that is no TOML is taken as text.
std::optional<Config> read_config(const std::string& path, const std::vector<std::string>& overrides,
                                  std::string* error);
std::optional<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides,
                                   std::string* error);

}  // namespace spillway::trainer
