#include "trainer/optimizer/quantization/dynamic_map.h"

#include <algorithm>
#include <cmath>

namespace spillway::trainer {
namespace {

CodeTable dynamic_map(bool with_signs) {
  CodeTable codes{0.0f, 1.0f};
  size_t next = 2;
  for (int i = 0; i <= 6; ++i) {
    const int bins = 1 << (with_signs ? i : i + 1);
    for (int bin = 0; bin < bins; ++bin) {
      const double middle = 0.1 + 0.9 * (bin + 0.5) / bins;
      const auto number = static_cast<float>(middle * std::pow(10.0, i - 6));
      codes[next++] = number;
      if (with_signs) codes[next++] = -number;
    }
  }
  std::sort(codes.begin(), codes.end());
  return codes;
}

}  // namespace

const CodeTable& signed_codes() {
  static const CodeTable codes = dynamic_map(true);
  return codes;
}

const CodeTable& unsigned_codes() {
  static const CodeTable codes = dynamic_map(false);
  return codes;
}

std::array<float, 255> thresholds_of(const CodeTable& codes) {
  std::array<float, 255> thresholds{};
  for (size_t i = 0; i < thresholds.size(); ++i) thresholds[i] = (codes[i] + codes[i + 1]) / 2;
  return thresholds;
}

}  // namespace spillway::trainer
