#include "trainer/plan/estimates/update_kernels.h"

#include <cmath>

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {
namespace {

// Moments, root, correction and the step.
constexpr double kAdam = 8;

// With the decay of matrices.
double of_rule(OptimizerKind optimizer, const Parameter& parameter) {
  const bool is_matrix = parameter.sizes.size() >= 2;
  const double decay = is_matrix ? 1 : 0;
  switch (optimizer) {
    case OptimizerKind::kSgd:
      return 3 + decay;
    case OptimizerKind::kAdamW8bit:
      return parameter.elements() >= uint64_t{kLeastQuantizedElements} ? 1 : kAdam + decay;
    case OptimizerKind::kAdafactor:
      return is_matrix ? 9 : 6;  // the size of the update is measured first
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
      break;
  }
  return kAdam + decay;
}

// What brings a tile into floats and back.
double of_rounding(const Numerics& numerics, const Parameter& parameter) {
  if (numerics.has_master_weights()) return 1;
  if (!numerics.rounds_stochastically()) return 0;
  if (!is_in_8_bits(numerics, parameter)) return 7;
  // The largest number of a row is found by halves.
  return 24 + std::ceil(std::log2(double(parameter.sizes[1])));
}

}  // namespace

UpdateKernels update_kernels(const Numerics& numerics, const Parameter& parameter) {
  // The gradient's norm; Adafactor's means, their roots and the parameter's size.
  const double means = parameter.sizes.size() >= 2 ? 19 : 7;
  return {.of_tile = of_rule(numerics.optimizer, parameter) + of_rounding(numerics, parameter),
          .of_parameter = 1 + (numerics.optimizer == OptimizerKind::kAdafactor ? means : 0)};
}

}  // namespace spillway::trainer
