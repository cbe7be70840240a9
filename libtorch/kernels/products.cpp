#include "libtorch/kernels/products.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

namespace spillway::kernels {
namespace {

// Where the two factors stand among the arguments, and how often two operations are done for each element of
// the result and of the inner dimension. Of attention the first two are queries and keys: two products
// forward, five backward.
struct Product {
  std::string_view name;
  size_t factors;
  double products;
  bool attention = false;
};
constexpr std::array kProducts = {
    Product{"aten::mm", 0, 1},
    Product{"aten::bmm", 0, 1},
    Product{"aten::addmm", 1, 1},
    Product{"aten::baddbmm", 1, 1},
    Product{"aten::_addmm_activation", 1, 1},
    Product{"aten::_scaled_dot_product_flash_attention", 0, 2, true},
    Product{"aten::_scaled_dot_product_efficient_attention", 0, 2, true},
    Product{"aten::_scaled_dot_product_cudnn_attention", 0, 2, true},
    Product{"aten::_scaled_dot_product_flash_attention_backward", 1, 5, true},
    Product{"aten::_scaled_dot_product_efficient_attention_backward", 1, 5, true},
    Product{"aten::_scaled_dot_product_cudnn_attention_backward", 1, 5, true},
};

const Product* find(std::string_view name) {
  name = name.substr(0, name.find('.'));
  const auto* found = std::ranges::find(kProducts, name, &Product::name);
  return found == kProducts.end() ? nullptr : found;
}

}  // namespace

bool is_product(std::string_view name) {
  return find(name) != nullptr;
}

double operations_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const Product* product = find(name);
  if (product == nullptr || inputs.size() < product->factors + 2) return 0;
  const c10::IValue &left = inputs[product->factors], &right = inputs[product->factors + 1];
  if (!left.isTensor() || !right.isTensor() || left.toTensor().dim() < 2 || right.toTensor().dim() < 2)
    return 0;
  const at::Tensor &a = left.toTensor(), &b = right.toTensor();
  const auto columns = static_cast<double>(b.size(product->attention ? -2 : -1));
  return 2 * product->products * static_cast<double>(a.numel()) * columns;
}

}  // namespace spillway::kernels
