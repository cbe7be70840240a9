#include "trainer/app/run/common_settings.h"

#include <torch/version.h>

#include <sstream>

#include "trainer/app/run/corpus_sizes.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

std::string common_settings(const Config& config, const Corpus& corpus, bool resumes) {
  std::ostringstream lines;
  lines << std::hexfloat;  // every digit
  const auto line = [&lines](const char* name, const auto& value) {
    lines << name << " = " << value << '\n';
  };
  const TrainConfig& train = config.train;
  line("PyTorch", TORCH_VERSION);
  line("model", to_string(config.model));
  line("model.pretrained", config.pretrained.empty() ? "none" : "given");
  line("the corpus", corpus_sizes(corpus, config.model));
  line("data.seed", config.data.seed);
  line("data.validation", config.data.validation);
  line("train.seed", train.seed);
  line("train.batch", train.batch);
  line("train.steps", train.steps);
  line("train.precision", name_of(train.numerics.precision));
  line("train.optimizer", name_of(train.numerics.optimizer));
  line("train.learning_rate", train.learning_rate);
  line("train.minimum_learning_rate", train.minimum_learning_rate);
  line("train.weight_decay", train.weight_decay);
  line("train.beta1", train.beta1);
  line("train.beta2", train.beta2);
  line("train.epsilon", train.epsilon);
  line("train.momentum", train.momentum);
  line("train.clip", train.clip);
  line("train.warmup", train.warmup);
  line("train.loss_scale", train.loss_scale);
  line("train.loss_scale_interval", train.loss_scale_interval);
  line("evaluation.every", config.evaluation.every);
  line("evaluation.windows", config.evaluation.windows);
  line("run.device", config.run.device);
  line("run.zero", config.run.zero);
  line("run.stages", config.run.stages);
  if (config.run.stages > 1)
    for (const uint32_t layers : config.stage_layers()) line("run.stage_layers", layers);
  line("--resume", resumes ? "given" : "none");
  // What follows is exchanged by all ranks or by none, where they share so much.
  if (config.run.zero >= 1 || config.run.stages > 1) {
    line("run.checkpoint_every", config.run.checkpoint_every);
    line("run.save", config.run.save.empty() ? "none" : "given");
  }
  if (config.shared_work().has_sequence())
    line("the plan", config.chooses_plan() ? "chosen by plan.automatic or plan.micro_batch" : "given");
  return lines.str();
}

}  // namespace spillway::trainer
