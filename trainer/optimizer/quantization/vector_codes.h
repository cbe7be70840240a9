// Several codes of a dynamic map at once, without a table of 256 numbers: the decade is found by comparing,
// and within one the numbers are evenly spaced.
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

// As many numbers as one instruction of a processor works on: 8 with AVX2, 16 with AVX-512.
template <int kLanes>
struct Lanes;
template <>
struct Lanes<8> {
  using Floats = float __attribute__((vector_size(32)));
  using Ints = int32_t __attribute__((vector_size(32)));
};
template <>
struct Lanes<16> {
  using Floats = float __attribute__((vector_size(64)));
  using Ints = int32_t __attribute__((vector_size(64)));
};

// table[index], lane by lane, and of two tables one after the other; an index counts modulo their length. One
// instruction of a processor that has it; Clang has no name for that.
template <typename Table, typename Index>
__attribute__((always_inline)) inline Table looked_up(Table table, Index index) {
#if defined(__clang__)
  constexpr size_t kEntries = sizeof(Table) / 4;
  Table found{};
  for (size_t lane = 0; lane < kEntries; ++lane) found[lane] = table[index[lane] % kEntries];
  return found;
#else
  return __builtin_shuffle(table, index);
#endif
}
template <typename Table, typename Index>
__attribute__((always_inline)) inline Table looked_up(Table low, Table high, Index index) {
#if defined(__clang__)
  return (index & int(sizeof(Table) / 4)) == 0 ? looked_up(low, index) : looked_up(high, index);
#else
  return __builtin_shuffle(low, high, index);
#endif
}

template <int kLanes>
class VectorCodes {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;

 public:
  explicit VectorCodes(bool is_signed) : offset_(is_signed ? 0 : 1), one_code_(is_signed ? 128 : 255) {
    for (int d = offset_; d < 7 + offset_; ++d) {
      const double unit = unit_of(d), bins = std::ldexp(1.0, d);
      const int slot = slot_of(d), before = d - offset_;
      slope_[slot] = static_cast<float>(unit * 0.9);
      base_[slot] = static_cast<float>(unit * (0.1 - 0.9));
      bins_per_unit_[before] = static_cast<float>(bins / (0.9 * unit));
      shift_[before] = static_cast<float>(bins / -9);
      first_[before] = (1 << d) - offset_;
      last_[before] = (2 << d) - 1 - offset_;
      const double below = before == 0 ? 0 : number(d - 1, (1 << d) / 2 - 1);
      from_[before] = static_cast<float>((number(d, 0) + below) / 2);
    }
    first_[7] = last_[7] = one_code_;
    from_[7] = static_cast<float>((1 + number(6 + offset_, (1 << (6 + offset_)) - 1)) / 2);
    if (kLanes > 8) base_[slot_of(7 + offset_)] = 1;
    for (int slot = 0; slot < kBinaries; ++slot) note_decades(slot);
  }

  // The numbers of codes, counted from that of 0 on.
  __attribute__((always_inline)) Floats decoded(Ints codes) const {
    const Ints bits =
        (Ints)(__builtin_convertvector(codes, Floats) + (float(offset_) + 0.5f));  // a bin's middle
    const Ints slot = (bits >> 23) & (kLanes - 1);
    const Floats place = (Floats)((bits & 0x7fffff) | 0x3f800000);
    const Floats number = looked_up(base_, slot) + looked_up(slope_, slot) * place;
    if constexpr (kLanes > 8) return number;  // its tables have a slot for 1
    return codes == one_code_ ? Floats{} + 1.0f : number;
  }

  // The nearest codes of numbers from 0 to 1.
  __attribute__((always_inline)) Ints encoded(Floats x) const {
    const Ints decade = decade_of(x);
    const Floats bin = x * looked_up(bins_per_unit_, decade) + looked_up(shift_, decade);
    const Ints code = __builtin_convertvector(bin, Ints) + looked_up(first_, decade);
    const Ints last = looked_up(last_, decade);  // also of numbers a little above the decade's
    return (code > last ? last : code) & (x >= from_[0]);
  }

 private:
  static constexpr int kBinaries = 32;  // of numbers from 2^-31 on, by their exponent's last bits

  // Of the numbers of one exponent. Powers of ten are so far apart that at most one lies among them.
  void note_decades(int slot) {
    const double low = std::ldexp(1.0, slot - (kBinaries - 1));
    const int half = slot / kLanes % 2, lane = slot % kLanes;
    next_by_binary_[half][lane] = 2;  // more than any
    for (int d = 1; d < 8; ++d) {
      if (from_[d] <= low) decade_by_binary_[half][lane] = d;
      if (from_[d] > low && from_[d] < 2 * low) next_by_binary_[half][lane] = from_[d];
    }
  }

  // How many decades lie below that of x; that of 1 is the last.
  __attribute__((always_inline)) Ints decade_of(Floats x) const {
    if constexpr (kLanes == 16) {
      const Ints binary = (Ints)x >> 23;
      return looked_up(decade_by_binary_[0], decade_by_binary_[1], binary) -
             (x >= looked_up(next_by_binary_[0], next_by_binary_[1], binary));
    } else {
      Ints decade = {};
      for (int d = 1; d < 8; ++d) decade -= x >= from_[d];
      return decade;
    }
  }

  double unit_of(int d) const { return std::pow(10.0, d - 6 - offset_); }
  double number(int d, int bin) const { return unit_of(d) * (0.1 + 0.9 * (bin + 0.5) / std::ldexp(1.0, d)); }
  // Of a float's exponent, by its last bits; the slot that is left is that of 0.
  static int slot_of(int d) { return (d + 127) & (kLanes - 1); }

  const int32_t offset_, one_code_;
  Floats slope_{}, base_{};           // by slot
  Floats next_by_binary_[2]{};        // where the decade ends among the numbers of an exponent
  Ints decade_by_binary_[2]{};        // that of the least of them
  Floats bins_per_unit_{}, shift_{};  // by decade, the lowest first
  Ints first_{}, last_{};
  float from_[8] = {};  // the least number that is nearer to a code of this decade than to one below
};

}  // namespace spillway::trainer
