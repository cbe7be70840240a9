#include "trainer/optimizer/quantization/dynamic_map.h"

#include <cmath>
#include <cstdlib>

namespace spillway::trainer {
namespace {

class Decades {
 public:
  explicit Decades(bool is_signed) : offset_(is_signed ? 0 : 1) {}

  CodeMap map() const {
    CodeMap map{};
    map.offset = offset_;
    map.one_code = offset_ == 0 ? 128 : 255;
    for (int place = 0; place < kDecades; ++place) add(place, &map);
    map.last_code[kDecades] = map.one_code;
    map.shift[kDecades] = static_cast<float>(map.one_code);
    const int highest = kDecades - 1 + offset_;
    map.from[kDecades] = static_cast<float>((1 + number(highest, (1 << highest) - 1)) / 2);
    return map;
  }

 private:
  double unit_of(int d) const { return std::pow(10.0, d - 6 - offset_); }
  double number(int d, int bin) const { return unit_of(d) * (0.1 + 0.9 * (bin + 0.5) / std::ldexp(1.0, d)); }

  void add(int place, CodeMap* map) const {
    const int d = place + offset_, slot = (d + 127) & 7;
    const double unit = unit_of(d), bins = std::ldexp(1.0, d);
    map->slope[slot] = static_cast<float>(unit * 0.9);
    map->base[slot] = static_cast<float>(unit * (0.1 - 0.9));
    map->codes_per_unit[place] = static_cast<float>(bins / (0.9 * unit));
    map->shift[place] =
        static_cast<float>(bins - offset_ - bins / 9);  // the decade begins with code 2^d - offset
    map->last_code[place] = (2 << d) - 1 - offset_;
    const double below = place == 0 ? 0 : number(d - 1, (1 << d) / 2 - 1);
    map->from[place] = static_cast<float>((number(d, 0) + below) / 2);
  }

  const int offset_;
};

// The least number from 0 to 1 that has this code or a higher one. Codes rise with the numbers, and numbers
// with their bits.
float least_of(const CodeMap& map, int code) {
  int below = bits_of(0.0f), above = bits_of(1.0f);
  while (above - below > 1) {
    const int middle = below + (above - below) / 2;
    (encoded(map, float_of(middle)) >= code ? above : below) = middle;
  }
  return float_of(above);
}

CodeTable unsigned_table() {
  CodeTable codes{};
  for (int code = 0; code < 256; ++code) codes[static_cast<size_t>(code)] = decoded(unsigned_map(), code);
  return codes;
}

CodeTable signed_table() {
  CodeTable codes{};
  for (int code = 0; code < 256; ++code) {
    const int size = std::abs(code - kSignedZero);
    codes[static_cast<size_t>(code)] = std::copysign(decoded(signed_map(), size), float(code - kSignedZero));
  }
  return codes;
}

Thresholds unsigned_limits() {
  Thresholds limits{};
  for (int code = 0; code < 255; ++code)
    limits[static_cast<size_t>(code)] = least_of(unsigned_map(), code + 1);
  return limits;
}

// Of a negative number the code falls where that of its size rises.
Thresholds signed_limits() {
  Thresholds limits{};
  for (int code = 0; code < 255; ++code) {
    const int size = code - kSignedZero;
    limits[static_cast<size_t>(code)] =
        size < 0 ? std::nextafter(-least_of(signed_map(), -size), 0.0f) : least_of(signed_map(), size + 1);
  }
  return limits;
}

}  // namespace

const CodeMap& signed_map() {
  static const CodeMap map = Decades(true).map();
  return map;
}

const CodeMap& unsigned_map() {
  static const CodeMap map = Decades(false).map();
  return map;
}

const CodeTable& signed_codes() {
  static const CodeTable codes = signed_table();
  return codes;
}

const CodeTable& unsigned_codes() {
  static const CodeTable codes = unsigned_table();
  return codes;
}

const Thresholds& signed_thresholds() {
  static const Thresholds limits = signed_limits();
  return limits;
}

const Thresholds& unsigned_thresholds() {
  static const Thresholds limits = unsigned_limits();
  return limits;
}

}  // namespace spillway::trainer
