// How a parameter is stored, and in how many bytes.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

// The layers' matrices under int8. Embeddings and the head stay in bfloat16: most of their rows change
// rarely, and the loss depends on them directly.
bool is_in_8_bits(const Numerics& numerics, const Parameter& parameter);

// Of the weight that the model computes with: codes and scales, or numbers.
uint64_t stored_bytes(const Numerics& numerics, const Parameter& parameter);

// What a layer's tensors that come to a device together begin at a multiple of: as an allocator's blocks do,
// because GPUs' kernels may sum in another order from another alignment.
inline constexpr uint64_t kTensorAlignment = 512;
constexpr uint64_t in_a_block(uint64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// The bytes of a unit's weights and of its gradients, each in a block of its own.
struct UnitBytes {
  uint32_t layer = 0;
  uint64_t weights = 0, gradients = 0;
  // Of matrices in tiles, which are in neither block.
  struct Tiled {
    uint64_t weights = 0, gradients = 0;            // of all
    uint64_t most_weights = 0, most_gradients = 0;  // of a tile
    uint64_t rows = 0, columns = 0, runs = 0;       // tiles of each kind
    struct Matrix {
      uint64_t weights = 0, gradients = 0;
    };
    std::vector<Matrix> matrices{};
  } tiled{};
};
std::vector<UnitBytes> unit_bytes(const Numerics& numerics, const std::vector<Parameter>& table,
                                  uint32_t tiles = 1);

}  // namespace spillway::trainer
