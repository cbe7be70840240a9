#include "libtorch/products.h"

#include <algorithm>
#include <array>

namespace spillway::libtorch {
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

const Product* product_named(std::string_view name) {
  name = name.substr(0, name.find('.'));
  const auto* found = std::ranges::find(kProducts, name, &Product::name);
  return found == kProducts.end() ? nullptr : found;
}

// Or a batch of them. A tensor that only stands for others may answer in Python, or have no size yet.
bool is_matrix(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_nested()) return false;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return !impl->is_python_dispatch() && !impl->has_symbolic_sizes_strides() && impl->dim() >= 2;
}

// Of batches: other tiles of the same product find what one of them has read.
bool stays_cached(const at::Tensor& tensor) {
  constexpr int64_t kCachedBytes = 16 << 20;
  return tensor.dim() > 2 && tensor.size(-2) * tensor.size(-1) * tensor.element_size() <= kCachedBytes;
}

uint32_t extent(const at::Tensor& tensor, int64_t dimension) {
  return static_cast<uint32_t>(std::min<int64_t>(tensor.size(dimension), UINT32_MAX));
}

}  // namespace

std::optional<size_t> left_factor(std::string_view name) {
  const Product* product = product_named(name);
  return product == nullptr || product->attention ? std::nullopt : std::optional(product->factors);
}

Extents extents_of(size_t input, size_t left, const at::Tensor& first, const at::Tensor& second) {
  if ((input != left && input != left + 1) || !is_matrix(first) || !is_matrix(second)) return {};
  if (stays_cached(input == left ? first : second)) return {};
  const uint32_t rows = extent(first, -2), columns = extent(second, -1);
  return input == left ? Extents{rows, columns} : Extents{columns, rows};
}

InputExtents::InputExtents(std::string_view name, c10::ArrayRef<const c10::IValue> inputs)
    : left_(left_factor(name)), inputs_(inputs) {
  if (left_ && (inputs.size() < *left_ + 2 || !inputs[*left_].isTensor() || !inputs[*left_ + 1].isTensor()))
    left_.reset();
}

Extents InputExtents::of(size_t input) const {
  if (!left_) return {};
  return extents_of(input, *left_, inputs_[*left_].toTensor(), inputs_[*left_ + 1].toTensor());
}

double operations_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const Product* product = product_named(name);
  if (product == nullptr || inputs.size() < product->factors + 2) return 0;
  const c10::IValue &left = inputs[product->factors], &right = inputs[product->factors + 1];
  if (!left.isTensor() || !right.isTensor() || left.toTensor().dim() < 2 || right.toTensor().dim() < 2)
    return 0;
  const at::Tensor &a = left.toTensor(), &b = right.toTensor();
  const auto columns = static_cast<double>(b.size(product->attention ? -2 : -1));
  return 2 * product->products * static_cast<double>(a.numel()) * columns;
}

}  // namespace spillway::libtorch
