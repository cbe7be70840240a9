#include <cmath>

#include "trainer/optimizer/rules/rules.h"

namespace spillway::trainer {

AdamRule::AdamRule(const TrainConfig& train, bool decoupled) : train_(train), decoupled_(decoupled) {
  for (at::Tensor* number :
       {&numbers_.keep, &numbers_.beta1, &numbers_.beta2, &numbers_.correction, &numbers_.epsilon})
    *number = at::zeros({}, at::TensorOptions().dtype(at::kFloat));
}

void AdamRule::begin(const Update& update) {
  const double t = double(update.number);
  const auto set = [](at::Tensor& number, double value) { *number.mutable_data_ptr<float>() = float(value); };
  set(numbers_.keep, 1 - update.rate * train_.weight_decay);
  set(numbers_.beta1, train_.beta1);
  set(numbers_.beta2, train_.beta2);
  set(numbers_.correction, 1 / std::sqrt(1 - std::pow(train_.beta2, t)));
  set(numbers_.epsilon, train_.epsilon);
  rate_ = update.rate / (1 - std::pow(train_.beta1, t));
}

void AdamRule::apply(const Tile& tile) {
  const at::Tensor &value = tile.value, &gradient = tile.gradient, &first = tile.states[0],
                   &second = tile.states[1];
  if (tile.decays && train_.weight_decay > 0)
    decoupled_ ? value.mul_(numbers_.keep) : gradient.add_(value, train_.weight_decay);
  first.mul_(numbers_.beta1).add_(gradient, 1 - train_.beta1);
  second.mul_(numbers_.beta2).addcmul_(gradient, gradient, 1 - train_.beta2);
  // From here on the gradient's memory holds the denominator.
  at::Tensor denominator = gradient;
  at::sqrt_out(denominator, second);
  denominator.mul_(numbers_.correction).add_(numbers_.epsilon);
  value.addcdiv_(first, denominator, -rate_);
}

}  // namespace spillway::trainer
