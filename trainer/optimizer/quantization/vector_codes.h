// Several codes of a map at once, without a table of 256 numbers: the decade is found by comparing, and
// within one the numbers are evenly spaced. The bits are those of code_map.h.
//
// Thread-safety: pure. Errors: none.
#pragma once
#include <cmath>
#include <cstdint>

#include "trainer/optimizer/quantization/code_map.h"

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
  explicit VectorCodes(const CodeMap& map) : offset_(map.offset), one_code_(map.one_code) {
    for (int place = 0; place <= kDecades; ++place) {
      codes_per_unit_[place] = map.codes_per_unit[place], shift_[place] = map.shift[place];
      last_[place] = map.last_code[place];
      from_[place] = map.from[place];
      const int exponent = place + offset_ + 127, slot = exponent & (kLanes - 1);
      if (place < kDecades) slope_[slot] = map.slope[exponent & 7], base_[slot] = map.base[exponent & 7];
    }
    if (kLanes > 8) base_[(kDecades + offset_ + 127) & (kLanes - 1)] = 1;
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
    const Floats place = x * looked_up(codes_per_unit_, decade) + looked_up(shift_, decade);
    const Ints code = __builtin_convertvector(place, Ints);
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

  const int32_t offset_, one_code_;
  Floats slope_{}, base_{};            // by the last bits of an exponent; the slot that is left is that of 0
  Floats next_by_binary_[2]{};         // where the decade ends among the numbers of an exponent
  Ints decade_by_binary_[2]{};         // that of the least of them
  Floats codes_per_unit_{}, shift_{};  // by decade, the lowest first
  Ints last_{};
  float from_[8] = {};
};

}  // namespace spillway::trainer
