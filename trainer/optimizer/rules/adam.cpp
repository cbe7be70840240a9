#include <cmath>

#include "trainer/optimizer/rules/rules.h"

namespace spillway::trainer {

AdamRule::AdamRule(const TrainConfig& train, bool decoupled) : train_(train), decoupled_(decoupled) {}

void AdamRule::begin(const Update& update) {
  const double t = double(update.number);
  keep_ = 1 - update.rate * train_.weight_decay;
  beta1_ = train_.beta1;
  beta2_ = train_.beta2;
  correction_ = 1 / std::sqrt(1 - std::pow(train_.beta2, t));
  epsilon_ = train_.epsilon;
  rate_ = update.rate / (1 - std::pow(train_.beta1, t));
}

void AdamRule::apply(const Tile& tile) {
  const at::Tensor &value = tile.value, &gradient = tile.gradient, &first = tile.states[0],
                   &second = tile.states[1];
  if (tile.decays && train_.weight_decay > 0)
    decoupled_ ? value.mul_(keep_) : gradient.add_(value, train_.weight_decay);
  first.mul_(beta1_).add_(gradient, 1 - train_.beta1);
  second.mul_(beta2_).addcmul_(gradient, gradient, 1 - train_.beta2);
  // From here on the gradient's memory holds the denominator.
  at::Tensor denominator = gradient;
  at::sqrt_out(denominator, second);
  denominator.mul_(correction_).add_(epsilon_);
  value.addcdiv_(first, denominator, -rate_);
}

}  // namespace spillway::trainer
