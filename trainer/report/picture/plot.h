// A rectangle of the report's picture with its scales, and how the picture is laid out.
//
// Thread-safety: pure functions. Errors: none. Units: pixels.
#pragma once
#include <cstddef>
#include <vector>

namespace spillway::trainer {

inline constexpr double kWidth = 1100, kLeft = 86, kRight = 24, kMemoryHeight = 260, kLossHeight = 150,
                        kTitle = 84, kGap = 66, kLine = 21;
inline constexpr size_t kMostDevices = 4, kMostMarks = 16, kMostLetters = 130;
inline constexpr size_t kEvaluationColour = 4;

// A rectangle of the picture with its scales.
struct Plot {
  double top = 0, height = 0;
  double first = 0, last = 1;  // steps; `last` is behind the last one
  double least = 0, most = 1;

  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * (step - first) / (last - first); }
  double y(double value) const { return top + height * (1 - (value - least) / (most - least)); }
};

// 1, 2 or 5 times a power of ten, at least a fifth of `span`.
double tick_of(double span);

// The multiples of `tick` from `least` to `most`.
std::vector<double> ticks(double least, double most, double tick);

}  // namespace spillway::trainer
