#include "trainer/optimizer/rules/rules.h"

namespace spillway::trainer {

void SgdRule::begin(const Update& update) {
  momentum_ = train_.momentum;
  rate_ = update.rate;
}

void SgdRule::apply(const Tile& tile) {
  if (tile.decays && train_.weight_decay > 0) tile.gradient.add_(tile.value, train_.weight_decay);
  // The first update's momentum is the gradient itself: the state was zero.
  tile.states[0].mul_(momentum_).add_(tile.gradient);
  tile.value.add_(tile.states[0], -rate_);
}

}  // namespace spillway::trainer
