#include "trainer/plan/estimates/update_kernels.h"

#include <cmath>

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {
namespace {

// With the decay of matrices. AdamW and Adam are one kernel, also with weights in bfloat16.
double of_rule(OptimizerKind optimizer, const Parameter& parameter) {
  const bool is_matrix = parameter.sizes.size() >= 2;
  const double decay = is_matrix ? 1 : 0;
  switch (optimizer) {
    case OptimizerKind::kSgd:
      return 3 + decay;
    case OptimizerKind::kAdafactor:
      return is_matrix ? 9 : 6;  // the size of the update is measured first
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW8bit:
      break;
  }
  return 1;
}

bool is_rounded_at_once(const Numerics& numerics, const Parameter& parameter) {
  const bool is_adam = numerics.optimizer == OptimizerKind::kAdamW ||
                       numerics.optimizer == OptimizerKind::kAdam ||
                       (numerics.optimizer == OptimizerKind::kAdamW8bit &&
                        parameter.elements() < uint64_t{kLeastQuantizedElements});
  return is_adam && numerics.precision != Precision::kFp16Mixed && !is_in_8_bits(numerics, parameter);
}

// What brings a tile into floats and back.
double of_rounding(const Numerics& numerics, const Parameter& parameter) {
  if (is_rounded_at_once(numerics, parameter)) return 0;
  if (numerics.has_master_weights()) return 1;
  if (!numerics.rounds_stochastically()) return 0;
  if (!is_in_8_bits(numerics, parameter)) return 7;
  // The largest number of a row is found by halves.
  return 24 + std::ceil(std::log2(double(parameter.sizes[1])));
}

}  // namespace

UpdateKernels update_kernels(const Numerics& numerics, const Parameter& parameter) {
  constexpr uint64_t tile = kTileElements;
  const uint64_t elements = parameter.elements();
  // The gradient's norm, of whole tiles and of the rest; Adafactor's means, their roots and the parameter's
  // size.
  const double means = parameter.sizes.size() >= 2 ? 19 : 7;
  return {.of_tile = of_rule(numerics.optimizer, parameter) + of_rounding(numerics, parameter),
          .of_parameter = (elements > tile && elements % tile != 0 ? 2 : 1) +
                          (numerics.optimizer == OptimizerKind::kAdafactor ? means : 0)};
}

}  // namespace spillway::trainer
