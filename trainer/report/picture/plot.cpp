#include "trainer/report/picture/plot.h"

#include <cmath>

namespace spillway::trainer {

double tick_of(double span) {
  const double rough = span / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= rough) return step * power;
  return 10 * power;
}

std::vector<double> ticks(double least, double most, double tick) {
  constexpr int kMost = 20;
  std::vector<double> all;
  all.reserve(kMost);
  const double first = std::ceil(least / tick);
  for (int i = 0; i < kMost && (first + i) * tick <= most; ++i) all.push_back((first + i) * tick);
  return all;
}

}  // namespace spillway::trainer
