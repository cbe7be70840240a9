// Random numbers for CUDA tensors that a CPU kernel draws.
//
// A CUDA generator is a seed and an offset, and that stays its whole state: each operator that draws gets a
// CPU generator filled from (seed, offset) and moves the offset on. So manual_seed, get_rng_state,
// set_rng_state and fork_rng work as on a GPU, and a recomputed dropout draws its mask again. The numbers are
// not a GPU's.
#pragma once
#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

#include "libtorch/kernels/own_kernels.h"

namespace spillway::kernels {

// A draw's whole identity; what CUDA kernels call the Philox seed and offset.
struct DrawKey {
  uint64_t seed;
  uint64_t offset;
};

// Takes the next draw of `given`, or of the device's default generator. Throws on a generator that is not
// CUDA's.
DrawKey next_draw(const std::optional<at::Generator>& given, c10::DeviceIndex device);

// The CPU generator of that draw; the same key gives the same numbers. Valid until this thread asks again.
at::Generator generator_of(DrawKey key);

inline at::Generator draw(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  return generator_of(next_draw(given, device));
}

// Dropouts, whose CPU kernels draw from the CPU's default generator.
void register_random(OwnKernels& library);

}  // namespace spillway::kernels
