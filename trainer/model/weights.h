// The weights that a model reads: floats, and matrices in 8 bits.
//
// A matrix in 8 bits is codes and a scale a row, scale · code being the number. In the list of tensors a leaf
// without memory of its own stands for it, so that autograd has where to leave its gradient.
//
// Thread-safety: read alone. Ownership: `Weights` borrows the lists, which must outlive the backward. Errors:
// LibTorch's exceptions.
#pragma once
#include <vector>

#include "trainer/libtorch.h"
#include "trainer/residency/layer_uses.h"
#include "trainer/residency/tiles/tiled_matrix.h"

namespace spillway::trainer {

inline constexpr double kMostCode = 127, kLeastScale = 1e-20;  // of any row, also one of zeros

struct Int8Weight {
  at::Tensor codes;   // [rows, columns], from -127 to 127
  at::Tensor scales;  // [rows], bfloat16
  bool defined() const { return codes.defined(); }
};

class Weights {
 public:
  using Tiled = c10::ArrayRef<std::unique_ptr<TiledMatrix>>;

  Weights(at::TensorList floats) : floats_(floats) {}                  // NOLINT: such a list is one
  Weights(const std::vector<at::Tensor>& floats) : floats_(floats) {}  // NOLINT
  // `int8` has an entry for each of `floats`; `uses` is told of layers, if it is not null.
  Weights(at::TensorList floats, c10::ArrayRef<Int8Weight> int8, LayerUses* uses = nullptr, Tiled tiled = {})
      : floats_(floats), int8_(int8), uses_(uses), tiled_(tiled) {}

  size_t size() const { return floats_.size(); }
  const at::Tensor& operator[](size_t index) const { return floats_[index]; }
  // nullptr for a weight of floats.
  const Int8Weight* int8(size_t index) const {
    return index < int8_.size() && int8_[index].defined() ? &int8_[index] : nullptr;
  }
  // nullptr for a weight that comes to its device as a whole.
  TiledMatrix* tiled(size_t index) const { return index < tiled_.size() ? tiled_[index].get() : nullptr; }
  LayerUses* uses() const { return uses_; }
  Weights slice(size_t first, size_t count) const {
    const auto part = [&](auto list) { return list.empty() ? list : list.slice(first, count); };
    return {floats_.slice(first, count), part(int8_), nullptr, part(tiled_)};
  }

 private:
  at::TensorList floats_;
  c10::ArrayRef<Int8Weight> int8_;
  LayerUses* uses_ = nullptr;
  Tiled tiled_;
};

// The nearest numbers in 8 bits.
Int8Weight in_8_bits(const at::Tensor& matrix);

// Its numbers, of that type.
at::Tensor numbers_of(const Int8Weight& weight, at::ScalarType type);

// The leaf that stands for a matrix in 8 bits: of its sizes, one number large.
at::Tensor stand_in(at::IntArrayRef sizes, at::Device device);

// How a matrix is stored: [out, in], as Linear of PyTorch, or [in, out].
enum class MatrixLayout : uint8_t { kOutIn, kInOut };

// x times the weight; x is [..., in]. The matrix has numbers of x's type for as long as a product takes, in
// the forward and again in the backward.
at::Tensor int8_product(const at::Tensor& x, const at::Tensor& stand_in, const Int8Weight& weight,
                        MatrixLayout layout);

}  // namespace spillway::trainer
