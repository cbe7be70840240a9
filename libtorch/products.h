// Operators that are matrix products: their kernels work tile by tile and read an operand once for each tile
// of the result that needs it.
//
// Thread-safety: pure functions of their arguments. Errors: an operator of other shapes counts as no product.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

namespace spillway::libtorch {

// "aten::mm", "aten::mm.out": where the left factor stands among the inputs; the right one follows. Not of
// attention: the tiles of queries that need the same keys run together.
std::optional<size_t> left_factor(std::string_view name);

// The rows of the result that a left factor has, or the columns that a right one has; and the others, for
// each tile of which it is read again. Of batches, those of one product. 0: no factor.
struct Extents {
  uint32_t own = 0, other = 0;
};
// Of the input at place `input`, where the factors stand at `left` and behind it.
Extents extents_of(size_t input, size_t left, const at::Tensor& first, const at::Tensor& second);
// The same for all inputs of an operator by its name.
class InputExtents {
 public:
  InputExtents(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);
  Extents of(size_t input) const;

 private:
  std::optional<size_t> left_;
  c10::ArrayRef<const c10::IValue> inputs_;
};

// Floating-point operations of such an operator, and of attention; 0 of any other.
double operations_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace spillway::libtorch
