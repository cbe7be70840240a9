// Random numbers of their place alone, for operators that round by them: on a processor, and as a kernel of a
// GPU.
//
// C++ and CUDA C++ alike, with the conditions of trainer/runtime/on_both.h.
//
// Thread-safety: pure but for what it writes. Errors: none. Ownership: none.
#pragma once
#include "trainer/optimizer/rounding/chance.h"

namespace spillway::trainer {

// Random numbers for the elements from `begin` on. The kernel's only argument.
struct RandomFill {
  unsigned* to;  // integers below 2^16, or floats from 0 to below 1
  unsigned long long key;
  long long begin, elements;
  int fractions;  // 1: floats
};
static_assert(sizeof(RandomFill) == 40, "both compilers lay it out alike");

SPILLWAY_ON_BOTH unsigned random_number(const RandomFill& fill, long long i) {
  const unsigned random = random_bits(fill.key, fill.begin + i);
  return fill.fractions ? static_cast<unsigned>(bits_of(fraction_of(random))) : random & 0xffffu;
}

inline constexpr int kFillThreads = 256;

#if defined(__CUDACC_RTC__)

extern "C" __global__ void __launch_bounds__(kFillThreads)
    spillway_fill_randomly(const __grid_constant__ RandomFill fill) {
  const long long i = (long long)blockIdx.x * kFillThreads + threadIdx.x;
  if (i < fill.elements) fill.to[i] = random_number(fill, i);
}

#else

// On a processor.
void fill_randomly(const RandomFill& fill);

#endif

}  // namespace spillway::trainer
