// Eight codes of a dynamic map at once, without a table of 256 numbers: the decade is found by comparing, and
// within one the numbers are evenly spaced.
//
// A code that stands for neither 0 nor 1, counted from the code of 0 on, is 2^d + bin in the signed map,
// whose decades d are 0 to 6, and 2^d + bin - 1 in the unsigned one, whose d are 1 to 7. As a float its
// exponent is the decade, and its fraction the place within it.
//
// Thread-safety: pure. Errors: none.
#pragma once
#include <cmath>
#include <cstdint>

namespace spillway::trainer {

inline constexpr int kLanes = 8;
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));

// table[index], lane by lane. One instruction of a processor that has it; Clang has no name for that.
template <typename Table>
__attribute__((always_inline)) inline Table looked_up(Table table, Ints index) {
#if defined(__clang__)
  Table found{};
  for (int lane = 0; lane < kLanes; ++lane) found[lane] = table[index[lane]];
  return found;
#else
  return __builtin_shuffle(table, index);
#endif
}

class VectorCodes {
 public:
  explicit VectorCodes(bool is_signed) : offset_(is_signed ? 0 : 1), one_code_(is_signed ? 128 : 255) {
    for (int d = offset_; d < 7 + offset_; ++d) {
      const double unit = unit_of(d), bins = std::ldexp(1.0, d);
      const int slot = slot_of(d), before = d - offset_;
      slope_[slot] = static_cast<float>(unit * 0.9);
      base_[slot] = static_cast<float>(unit * (0.1 - 0.9));
      bins_per_unit_[before] = static_cast<float>(bins / (0.9 * unit));
      first_[before] = 1 << d;
      last_[before] = (2 << d) - 1;
      const double below = before == 0 ? 0 : number(d - 1, (1 << d) / 2 - 1);
      from_[before] = static_cast<float>((number(d, 0) + below) / 2);
    }
    for (int before = 0; before < 7; ++before) shift_[before] = static_cast<float>(-first_[before] / 9.0);
    one_ = static_cast<float>((1 + number(6 + offset_, (1 << (6 + offset_)) - 1)) / 2);
  }

  // The numbers of codes, counted from that of 0 on.
  __attribute__((always_inline)) Floats decoded(Ints codes) const {
    const Ints bits =
        (Ints)(__builtin_convertvector(codes, Floats) + (float(offset_) + 0.5f));  // a bin's middle
    const Ints slot = (bits >> 23) & 7;
    const Floats place = (Floats)((bits & 0x7fffff) | 0x3f800000);
    const Floats number = looked_up(base_, slot) + looked_up(slope_, slot) * place;
    return codes == one_code_ ? Floats{} + 1.0f : number;
  }

  // The nearest codes of numbers from 0 to 1.
  __attribute__((always_inline)) Ints encoded(Floats x) const {
    Ints decade = {};
    for (int d = 1; d < 7; ++d) decade -= x >= from_[d];
    const Ints first = looked_up(first_, decade), last = looked_up(last_, decade);
    const Floats bin = x * looked_up(bins_per_unit_, decade) + looked_up(shift_, decade);
    Ints code = __builtin_convertvector(bin, Ints) + first;
    code = code < first ? first : code;
    code = code > last ? last : code;
    code = code - offset_ - (x >= one_);
    return code & (x >= from_[0]);
  }

 private:
  double unit_of(int d) const { return std::pow(10.0, d - 6 - offset_); }
  double number(int d, int bin) const { return unit_of(d) * (0.1 + 0.9 * (bin + 0.5) / std::ldexp(1.0, d)); }
  // Of a float's exponent, by its last bits; the slot that is left is that of 0.
  static int slot_of(int d) { return (d + 127) & 7; }

  const int32_t offset_, one_code_;
  Floats slope_{}, base_{};           // by slot
  Floats bins_per_unit_{}, shift_{};  // by decade, the lowest first
  Ints first_{}, last_{};
  float from_[7] = {};  // the least number that is nearer to a code of this decade than to one below
  float one_ = 0;       // the same for the code of 1
};

}  // namespace spillway::trainer
