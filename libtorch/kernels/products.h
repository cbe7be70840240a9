// Operators that are matrix products: their kernels work tile by tile and read an operand once for each tile
// of the result that needs it.
//
// Thread-safety: pure functions of their arguments. Errors: an operator of other shapes counts as no
// arithmetic.
#pragma once
#include <ATen/core/ivalue.h>

#include <string_view>

namespace spillway::kernels {

// "aten::mm", "aten::mm.out": products, and attention, which reads keys and values once for each tile of
// queries.
bool is_product(std::string_view name);
// Floating-point operations of such an operator; 0 of any other.
double operations_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace spillway::kernels
