#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {

bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter) {
  return numerics.precision == Precision::kInt8 && parameter.layer >= 0 && parameter.sizes.size() == 2;
}

uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter) {
  if (!is_in_8_bits(numerics, parameter)) return parameter.elements() * numerics.weight_bytes();
  return parameter.elements() + static_cast<uint64_t>(parameter.sizes[0]) * numerics.weight_bytes();
}

std::vector<LayerBytes> layer_bytes(const Numerics& numerics, const std::vector<Parameter>& table) {
  std::vector<LayerBytes> layers;
  for (const Parameter& parameter : table) {
    if (parameter.layer < 0) continue;
    const auto layer = static_cast<size_t>(parameter.layer);
    if (layer >= layers.size()) layers.resize(layer + 1);
    const uint64_t elements = parameter.elements(), stored = stored_bytes(numerics, parameter);
    const uint64_t scales = is_in_8_bits(numerics, parameter) ? stored - elements : 0;
    layers[layer].weights += in_a_block(stored - scales) + in_a_block(scales);
    layers[layer].gradients += in_a_block(elements * numerics.gradient_bytes());
  }
  return layers;
}

}  // namespace spillway::trainer
