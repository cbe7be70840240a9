// What a training came to, and the name of a case that is trained in certain numbers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/plan/numerics.h"

namespace spillway::trainer {

struct Outcome {
  std::vector<double> losses, norms;
  uint64_t weights = 0;
  // By their bits: the norm of an overflow may be no number.
  bool operator==(const Outcome& other) const {
    const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
    };
    return same(losses, other.losses) && same(norms, other.norms) && weights == other.weights;
  }
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    out << std::hexfloat << "losses";
    for (const double loss : outcome.losses) out << ' ' << loss;
    out << ", norms";
    for (const double norm : outcome.norms) out << ' ' << norm;
    return out << std::hex << ", weights " << outcome.weights;
  }
};

// As GoogleTest wants it: letters, digits and underscores.
inline std::string case_name(const Numerics& numerics) {
  std::string name = std::string(name_of(numerics.precision)) + "_" + name_of(numerics.optimizer);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace spillway::trainer
