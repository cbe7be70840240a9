#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

constexpr int64_t kNumbersAtOnce = 1 << 14;  // of one thread of a processor

}  // namespace

void AdamRule::reserve(at::Device device, int64_t elements) {
  if (!device.is_cuda()) return;
  if (kernels_.prepared(device) == nullptr)
    return reserve_operators(device, std::min(elements, kTileElements));
  products_.erase(device_key(device));
}

void AdamRule::reserve_operators(at::Device device, int64_t elements) {
  at::Tensor& product = products_[device_key(device)];
  if (!product.defined() || product.numel() != elements)
    product = at::empty({elements}, at::device(device).dtype(at::kFloat));
}

void AdamRule::begin(const Update& update) {
  const double t = double(update.number), decay = train_.weight_decay;
  numbers_ = {.scale = float(update.scale),
              .decay = decoupled_ ? 0 : float(decay),
              .keep = decoupled_ ? float(1 - update.rate * decay) : 1,
              .beta1 = float(train_.beta1),
              .of_first = float(1 - train_.beta1),
              .beta2 = float(train_.beta2),
              .of_second = float(1 - train_.beta2),
              .rate = float(update.rate / (1 - std::pow(train_.beta1, t))),
              .correction = float(1 / std::sqrt(1 - std::pow(train_.beta2, t))),
              .epsilon = float(train_.epsilon)};
  decay_ = numbers_.decay, keep_ = numbers_.keep;
  beta1_ = numbers_.beta1, of_first_ = numbers_.of_first;
  beta2_ = numbers_.beta2, of_second_ = numbers_.of_second;
  rate_ = numbers_.rate, correction_ = numbers_.correction, epsilon_ = numbers_.epsilon;
}

AdamUpdate AdamRule::update_of(const Tile& tile) const {
  const auto bfloat16 = [](const at::Tensor& of) {
    return of.defined() && of.scalar_type() == at::kBFloat16
               ? static_cast<unsigned short*>(of.mutable_data_ptr())
               : nullptr;
  };
  const bool in_floats = tile.value.defined();
  AdamUpdate update{.numbers = numbers_,
                    .value = in_floats ? tile.value.mutable_data_ptr<float>() : nullptr,
                    .gradient = in_floats ? tile.gradient.const_data_ptr<float>() : nullptr,
                    .bfloat16 = bfloat16(tile.weights),
                    .bfloat16_gradient = in_floats ? nullptr : bfloat16(tile.gradient),
                    .first = tile.states[0].mutable_data_ptr<float>(),
                    .second = tile.states[1].mutable_data_ptr<float>(),
                    .chance = tile.chance,
                    .begin = tile.begin,
                    .elements = tile.gradient.numel()};
  if (!tile.decays) update.numbers.decay = 0, update.numbers.keep = 1;
  return update;
}

bool AdamRule::apply_at_once(const Tile& tile) {
  if (!tile.value.defined() && !tile.weights.defined()) return false;  // a matrix in 8 bits
  const AdamUpdate update = update_of(tile);
  if (!tile.gradient.is_cuda()) {
    at::parallel_for(0, update.elements, kNumbersAtOnce,
                     [&](int64_t begin, int64_t end) { update_numbers(part_of(update, begin, end)); });
  } else if (const AdamKernel* const kernel = kernels_.on(tile.gradient)) {
    kernel->update(update);
  } else {
    return false;
  }
  if (tile.weights.defined() && update.bfloat16 == nullptr) tile.weights.copy_(tile.value);
  return true;
}

void AdamRule::apply(const Tile& tile) {
  for (int64_t begin = 0; begin < tile.value.numel(); begin += kTileElements) {
    const int64_t elements = std::min(kTileElements, tile.value.numel() - begin);
    Tile part = tile;
    for (at::Tensor* each : {&part.value, &part.gradient, &part.states[0], &part.states[1]})
      *each = each->narrow(0, begin, elements);
    apply_by_operators(part);
  }
}

// Products and sums apart, as the kernel has them: a product that is added by one operator may be rounded
// with the sum.
void AdamRule::apply_by_operators(const Tile& tile) {
  const at::Tensor &value = tile.value, &gradient = tile.gradient, &first = tile.states[0],
                   &second = tile.states[1];
  at::Tensor product = products_.at(device_key(value)).narrow(0, 0, value.numel());
  if (tile.decays && train_.weight_decay > 0) {
    if (decoupled_)
      value.mul_(keep_);
    else
      gradient.add_(at::mul_out(product, value, decay_));
  }
  first.mul_(beta1_).add_(at::mul_out(product, gradient, of_first_));
  second.mul_(beta2_).add_(at::mul_out(product, gradient, of_second_).mul_(gradient));
  // From here on the gradient's memory holds the change.
  at::Tensor change = gradient;
  at::sqrt_out(change, second);
  change.mul_(correction_).add_(epsilon_);
  at::div_out(change, first, change);
  value.sub_(change.mul_(rate_));
}

}  // namespace spillway::trainer
