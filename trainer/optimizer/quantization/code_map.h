// The numbers that an 8-bit code stands for, and the nearest code of a number, by arithmetic in 32-bit
// floats.
//
// The map is Dettmers', "8-Bit Approximations for Parallelism in Deep Learning" (2016), as bitsandbytes
// builds it: for i = 0..6 the interval from 0.1 to 1 is cut into 2^i bins (signed: of both signs) or 2^(i+1)
// bins (unsigned), whose middles times 10^(i-6) are the numbers; with 0 and 1 they are 256. A block's numbers
// are divided by the largest of them before.
//
// A code that stands for neither 0 nor 1, counted from the code of 0 on, is 2^d + bin in the signed map,
// whose decades d are 0 to 6, and 2^d + bin - 1 in the unsigned one, whose d are 1 to 7. As a float its
// exponent is the decade, and its fraction the place within it.
//
// C++ and CUDA C++ alike, with the conditions of trainer/runtime/on_both.h.
//
// Thread-safety: pure. Errors: none. Ownership: none.
#pragma once
#include "trainer/runtime/on_both.h"

namespace spillway::trainer {

inline constexpr int kDecades = 7;
inline constexpr int kSignedZero = 127;  // the code of 0 among the signed ones

struct CodeMap {
  float slope[8], base[8];            // of a decade's numbers, by the last bits of its exponent
  float codes_per_unit[8], shift[8];  // by decade, the lowest first; the last is that of 1
  float from[8];     // the least number that is nearer to a code of this decade than to one below
  int last_code[8];  // of a decade, counted from the code of 0 on
  int offset, one_code;
};

// The number of a code, counted from that of 0 on.
SPILLWAY_ON_BOTH float decoded(const CodeMap& map, int code) {
  const int bits = bits_of(float(code) + (float(map.offset) + 0.5f));  // a bin's middle
  const int slot = (bits >> 23) & 7;
  const float number = map.base[slot] + map.slope[slot] * float_of((bits & 0x7fffff) | 0x3f800000);
  return code == map.one_code ? 1.0f : number;
}

// The nearest code of a number from 0 to 1; that of 0 where it is no number.
SPILLWAY_ON_BOTH int encoded(const CodeMap& map, float x) {
  if (!(x >= map.from[0])) return 0;
  int decade = 0;
  for (int d = 1; d <= kDecades; ++d) decade += x >= map.from[d];
  const int code = int(x * map.codes_per_unit[decade] + map.shift[decade]);
  const int last = map.last_code[decade];  // also of numbers a little above the decade's
  return code > last ? last : code;
}

}  // namespace spillway::trainer
