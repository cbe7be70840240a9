#include "trainer/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::trainer {

double learning_rate(const TrainConfig& train, uint64_t step) {
  if (step < train.warmup) return train.learning_rate * double(step + 1) / double(train.warmup);
  const double left = double(train.steps > train.warmup ? train.steps - train.warmup : 1);
  const double done = std::min(1.0, double(step - train.warmup) / left);
  const double floor = std::min(train.minimum_learning_rate, train.learning_rate);
  return floor + (train.learning_rate - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace spillway::trainer
