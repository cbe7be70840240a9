#include "trainer/plan/stages/stage.h"

#include <algorithm>

namespace spillway::trainer {

Stage stage_of(const std::vector<uint32_t>& layers, uint32_t number) {
  Stage stage{.number = number, .count = uint32_t(layers.size()), .first = 0, .end = 0};
  for (uint32_t before = 0; before < number; ++before) stage.first += layers[before];
  stage.end = stage.first + layers[number];
  return stage;
}

// With so many layers at most where the head does not count, and fewer on the last stage, all have room: the
// least number for which that is so.
std::vector<uint32_t> balanced_layers(const Architecture& model, uint32_t count) {
  const uint32_t layers = model.all_layers();
  if (count == 1) return {layers};
  const double head = double(model.vocabulary) * model.width / double(layer_parameter_count(model, 0));
  const auto of_last = [&](uint32_t most) { return uint32_t(std::max(1.0, double(most) - head)); };
  uint32_t most = (layers + count - 1) / count;
  while ((count - 1) * most + of_last(most) < layers) ++most;
  const uint32_t last = std::min(of_last(most), layers - (count - 1));
  std::vector<uint32_t> result(count, last);
  const uint32_t others = layers - last;
  for (uint32_t stage = 0; stage + 1 < count; ++stage)
    result[stage] = others / (count - 1) + (stage < others % (count - 1) ? 1 : 0);
  return result;
}

std::string fault_of_stages(const Architecture& model, const Numerics& numerics, uint32_t zero,
                            uint32_t count) {
  if (count == 1) return "";
  if (model.has_decoder()) return " cuts models of one stack of layers, and a t5 has two: take 1";
  if (count > model.all_layers())
    return " is " + std::to_string(count) + ", more than the model's " + std::to_string(model.all_layers()) +
           " layers";
  if (zero > 1)
    return " above 1 has several micro-batches under way, and stage " + std::to_string(zero) +
           " of ZeRO adds up each one's gradients at once: take stage 1 of ZeRO";
  if (numerics.optimizer == OptimizerKind::kAdafactor)
    return " above 1 is not for adafactor: take another optimizer";
  if (numerics.precision == Precision::kInt8) return " above 1 is not for int8: take another precision";
  return "";
}

bool has(const Stage& stage, const Parameter& parameter) {
  if (parameter.layer >= 0)
    return uint32_t(parameter.layer) >= stage.first && uint32_t(parameter.layer) < stage.end;
  return (stage.is_first() && parameter.end != End::kLast) ||
         (stage.is_last() && parameter.end != End::kFirst);
}

std::vector<Parameter> parameter_table(const Architecture& model, const Stage& stage) {
  std::vector<Parameter> table = parameter_table(model);
  if (stage.is_alone()) return table;
  for (Parameter& parameter : table) {
    if (!has(stage, parameter)) parameter.sizes = {0};
    parameter.is_twin = has(stage, parameter) && parameter.layer < 0 && parameter.end == End::kBoth;
  }
  return table;
}

}  // namespace spillway::trainer
