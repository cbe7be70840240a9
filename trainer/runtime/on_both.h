// For functions that are C++ and CUDA C++ alike: a GPU's compiler reads their file when the program runs, and
// a processor's when it is built.
//
// Products and sums must not be contracted (-ffp-contract=off, --fmad=false), so that every processor and GPU
// has the same bits.
#pragma once
#if defined(__CUDACC_RTC__)
#define SPILLWAY_ON_BOTH __device__ __forceinline__
#define SPILLWAY_UNROLL _Pragma("unroll")
#else
#define SPILLWAY_ON_BOTH inline
#define SPILLWAY_UNROLL
#endif

namespace spillway::trainer {

SPILLWAY_ON_BOTH int bits_of(float number) {
  return __builtin_bit_cast(int, number);
}
SPILLWAY_ON_BOTH float float_of(int bits) {
  return __builtin_bit_cast(float, bits);
}

}  // namespace spillway::trainer
