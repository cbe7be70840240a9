// How many kernels the update of one parameter launches. Tiles are small, so that a device launches them one
// behind the other, and their number decides how long an update takes.
//
// Counted in trainer/optimizer, without a factor for the gradients (clipping; a scale of the loss).
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

struct UpdateKernels {
  double of_tile = 0;
  double of_parameter = 0;  // before its tiles
};

UpdateKernels update_kernels(const Numerics& numerics, const Parameter& parameter);

}  // namespace spillway::trainer
