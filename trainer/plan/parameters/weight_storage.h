// How a parameter is stored, and in how many bytes.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <cstdint>

#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

// The layers' matrices under int8. Embeddings and the head stay in bfloat16: most of their rows change
// rarely, and the loss depends on them directly.
bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter);

// Of the weight that the model computes with: codes and scales, or numbers.
uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter);

}  // namespace spillway::trainer
