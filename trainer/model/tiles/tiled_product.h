// A product with a matrix that comes to its device in tiles, each a product of its own.
//
// The forward goes through tiles of outputs, and the backward through tiles of inputs, so that each number is
// one whole sum in both; the gradient of the weights goes to their accumulator tile by tile. No more than a
// tile of weights and one of fresh gradients is there at a time, beside the caches' slots.
//
// Thread-safety and errors: those of a TiledMatrix. Ownership: borrows the matrix, which must outlive the
// backward.
#pragma once
#include "trainer/model/weights.h"
#include "trainer/residency/tiles/tiled_matrix.h"

namespace spillway::trainer {

// x is [..., in]; `bias` may be undefined, and is for kInOut alone.
at::Tensor tiled_product(const at::Tensor& x, const at::Tensor& bias, TiledMatrix* matrix,
                         MatrixLayout layout);

}  // namespace spillway::trainer
