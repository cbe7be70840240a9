#include "trainer/config/idle_settings.h"

namespace spillway::trainer {
namespace {

class Idle {
 public:
  Idle(const Config& config, const std::set<std::string>& given) : config_(config), given_(given) {}

  std::vector<std::string> all() {
    optimizer();
    steps();
    if (!config_.chooses_plan()) plan();
    if (config_.run.device == "cpu" && config_.run.devices > 1)
      say("run.devices", "'run.device' is \"cpu\", which is one");
    return std::move(sentences_);
  }

 private:
  void say(const std::string& key, const std::string& why) {
    if (given_.contains(key)) sentences_.push_back("'" + key + "' has no effect: " + why);
  }

  void optimizer() {
    const Numerics& numerics = config_.train.numerics;
    const bool is_sgd = numerics.optimizer == OptimizerKind::kSgd;
    const std::string optimizer = std::string("'train.optimizer' is \"") + name_of(numerics.optimizer) + '"';
    if (!is_sgd) say("train.momentum", optimizer);
    if (is_sgd || numerics.optimizer == OptimizerKind::kAdafactor)
      for (const char* key : {"train.beta1", "train.beta2", "train.epsilon"}) say(key, optimizer);
    const std::string precision = std::string("'train.precision' is \"") + name_of(numerics.precision) + '"';
    if (numerics.precision != Precision::kFp16Mixed)
      for (const char* key : {"train.loss_scale", "train.loss_scale_interval"}) say(key, precision);
  }

  void steps() {
    const TrainConfig& train = config_.train;
    if (!given_.contains("train.warmup") || train.warmup <= train.steps) return;
    sentences_.push_back("'train.warmup' (" + std::to_string(train.warmup) +
                         ") is longer than 'train.steps' (" + std::to_string(train.steps) +
                         "): 'train.learning_rate' is not reached");
  }

  void plan() {
    const Plan& plan = config_.plan;
    if (plan.micro_batch > config_.train.batch)
      say("plan.micro_batch", "a step has the " + std::to_string(config_.train.batch) +
                                  " sequence(s) of 'train.batch', and is one micro-batch");
    if (plan.recompute_segment > 1 && plan.recompute.empty())
      say("plan.recompute_segment", "no layer is in 'plan.recompute'");
    if (plan.tiles > 1 && normalised(plan).tiles == 1)
      say("plan.tiles",
          "'plan.parameters', 'plan.gradients' and 'plan.optimizer' must be on the host or nvme");
    if (plan.update_on_host && !plan.updates_on_host())
      say("plan.update_on",
          "'plan.parameters', 'plan.gradients' and 'plan.optimizer' must be \"host\", and 'plan.tiles' 1");
    if (plan.update_slots > plan.slots_of_update())
      say("plan.update_slots",
          plan.updates_on_host()
              ? "with 'plan.update_on' = \"host\" no layer's states come to the device"
              : "'plan.update' must be \"just_in_time\" and 'plan.optimizer' \"host\" or \"peer\"");
  }

  const Config& config_;
  const std::set<std::string>& given_;
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<std::string> idle_settings(const Config& config, const std::set<std::string>& given) {
  return Idle(config, given).all();
}

}  // namespace spillway::trainer
