#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {

bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter) {
  return numerics.precision == Precision::kInt8 && parameter.layer >= 0 && parameter.sizes.size() == 2;
}

uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter) {
  if (!is_in_8_bits(numerics, parameter)) return parameter.elements() * numerics.weight_bytes();
  return parameter.elements() + static_cast<uint64_t>(parameter.sizes[0]) * numerics.weight_bytes();
}

}  // namespace spillway::trainer
