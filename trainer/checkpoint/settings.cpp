#include "trainer/checkpoint/settings.h"

#include <charconv>
#include <map>
#include <sstream>
#include <string_view>

namespace spillway::trainer {
namespace {

bool uses_betas(OptimizerKind optimizer) {
  return optimizer != OptimizerKind::kSgd && optimizer != OptimizerKind::kAdafactor;
}

std::map<std::string, std::string> values_of(const std::string& settings) {
  std::map<std::string, std::string> values;
  std::istringstream lines(settings);
  constexpr std::string_view kIs = " = ";
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(kIs); at != line.npos)
      values[line.substr(0, at)] = line.substr(at + kIs.size());
  return values;
}

}  // namespace

std::string number_text(double number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

std::string settings_of(const Config& config) {
  const TrainConfig& train = config.train;
  std::string text;
  const auto line = [&text](const char* name, double value) {
    text += name + (" = " + number_text(value)) + '\n';
  };
  line("model.dropout", config.model.dropout);
  line("train.batch", train.batch);
  line("train.learning_rate", train.learning_rate);
  line("train.warmup", double(train.warmup));
  // Behind the warmup the rate falls to its minimum at the last step.
  if (train.steps > train.warmup) {
    line("train.minimum_learning_rate", train.minimum_learning_rate);
    if (train.minimum_learning_rate < train.learning_rate) line("train.steps", double(train.steps));
  }
  line("train.weight_decay", train.weight_decay);
  line("train.clip", train.clip);
  if (uses_betas(train.numerics.optimizer)) {
    line("train.beta1", train.beta1);
    line("train.beta2", train.beta2);
    line("train.epsilon", train.epsilon);
  }
  if (train.numerics.optimizer == OptimizerKind::kSgd) line("train.momentum", train.momentum);
  if (train.numerics.precision == Precision::kFp16Mixed)
    line("train.loss_scale_interval", double(train.loss_scale_interval));
  // Roundings come from the seed. One process has its dropout's generators from the checkpoint.
  if (train.numerics.rounds_stochastically()) text += "train.seed = " + std::to_string(train.seed) + '\n';
  return text;
}

std::string changed_settings(const std::string& before, const std::string& now) {
  const std::map<std::string, std::string> were = values_of(before), are = values_of(now);
  std::string text;
  for (const auto& [name, value] : were) {
    const auto is = are.find(name);
    if (is == are.end() || is->second == value) continue;
    if (!text.empty()) text += ", ";
    text.append(name).append(" was ").append(value).append(" and is ").append(is->second);
  }
  return text;
}

}  // namespace spillway::trainer
