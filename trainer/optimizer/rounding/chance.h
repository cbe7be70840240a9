// Random bits of their place alone, and rounding to bfloat16 by them: up with the probability of the part
// that is cut off, such that the mean is right.
//
// The bits are SplitMix64's (Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014) of a key
// and a position. Sixteen of them are added below those that stay, and the sum is cut: Gupta et al., "Deep
// Learning with Limited Numerical Precision" (2015).
//
// C++ and CUDA C++ alike, with the conditions of trainer/runtime/on_both.h.
//
// Thread-safety: pure but for what it writes. Errors: none. Ownership: none.
#pragma once
#include "trainer/runtime/on_both.h"

namespace spillway::trainer {

SPILLWAY_ON_BOTH unsigned random_bits(unsigned long long key, long long at) {
  unsigned long long z = key + static_cast<unsigned long long>(at) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<unsigned>((z ^ (z >> 31)) >> 32);
}

// A float's bits to which sixteen random ones are added. What is no number stays none.
SPILLWAY_ON_BOTH unsigned short to_bfloat16_by_chance(float value, unsigned random) {
  const unsigned sum = static_cast<unsigned>(bits_of(value)) + (random & 0xffffu);
  return static_cast<unsigned short>(value == value ? sum >> 16 : 0x7fc0u);
}

SPILLWAY_ON_BOTH float from_bfloat16(unsigned short bits) {
  return float_of(static_cast<int>(static_cast<unsigned>(bits) << 16));
}

// From 0 to below 1.
SPILLWAY_ON_BOTH float fraction_of(unsigned random) {
  return static_cast<float>(random >> 8) * 0x1p-24f;
}

}  // namespace spillway::trainer
