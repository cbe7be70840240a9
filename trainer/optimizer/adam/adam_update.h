// AdamW and Adam with moments in 32 bits, number by number: a GPU's thread, or a processor's vectors, read
// and write each number once.
//
// Adam, of Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015); AdamW, of Loshchilov and
// Hutter, "Decoupled Weight Decay Regularization" (2019).
//
// C++ and CUDA C++ alike, with the conditions of trainer/runtime/on_both.h; and division and root rounded to
// the nearest, subnormal numbers kept.
//
// Thread-safety: pure but for what it writes; numbers are independent. Errors: none. Ownership: none.
#pragma once
#include "trainer/optimizer/rounding/chance.h"
#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace spillway::trainer {

struct AdamNumbers {
  float scale = 1;                 // of the gradient
  float decay = 0;                 // Adam: what of a value is added to its gradient
  float keep = 1;                  // AdamW: what weight decay leaves of a value
  float beta1 = 0, of_first = 0;   // what a moment keeps, and what it takes of the gradient
  float beta2 = 0, of_second = 0;  // and of its square
  float rate = 0;                  // divided by the first moment's bias
  float correction = 1;            // of the second moment's root
  float epsilon = 0;
};

// The kernel's only argument. The numbers are floats, `value` and `gradient`, and bfloat16 may follow from
// them. Or they are bfloat16, with gradients of their kind: then `value` and `gradient` are null, and an
// update is rounded by chance.
struct AdamUpdate {
  AdamNumbers numbers;
  float* value;
  const float* gradient;
  unsigned short* bfloat16;  // null: nobody wants the value rounded (to the nearest)
  const unsigned short* bfloat16_gradient;
  float *first, *second;      // the moments
  unsigned long long chance;  // the key of `random_bits`
  long long begin;            // the first number's position for it
  long long elements;
};
static_assert(sizeof(AdamUpdate) == 112, "both compilers lay it out alike");

// A number on its way.
struct AdamNumber {
  float value, gradient, first, second;
};

SPILLWAY_ON_BOTH void advance(const AdamNumbers& numbers, AdamNumber* number) {
  float g = numbers.scale * number->gradient;
  if (numbers.decay != 0) g = g + numbers.decay * number->value;
  const float m = numbers.beta1 * number->first + numbers.of_first * g;
  const float v = numbers.beta2 * number->second + numbers.of_second * g * g;
  const float root = sqrtf(v) * numbers.correction + numbers.epsilon;
  number->first = m, number->second = v;
  number->value = numbers.keep * number->value - numbers.rate * (m / root);
}

// To the nearest, and of two to the even one. What is no number stays none.
SPILLWAY_ON_BOTH unsigned short to_bfloat16(float value) {
  const auto bits = static_cast<unsigned>(bits_of(value));
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<unsigned short>(value == value ? rounded : 0x7fc0u);
}

SPILLWAY_ON_BOTH AdamNumber read_number(const AdamUpdate& update, long long at) {
  const float first = update.first[at], second = update.second[at];
  if (update.value) return {update.value[at], update.gradient[at], first, second};
  return {from_bfloat16(update.bfloat16[at]), from_bfloat16(update.bfloat16_gradient[at]), first, second};
}

SPILLWAY_ON_BOTH void write_number(const AdamUpdate& update, long long at, const AdamNumber& number) {
  update.first[at] = number.first, update.second[at] = number.second;
  if (!update.value) {
    update.bfloat16[at] = to_bfloat16_by_chance(number.value, random_bits(update.chance, update.begin + at));
    return;
  }
  update.value[at] = number.value;
  if (update.bfloat16) update.bfloat16[at] = to_bfloat16(number.value);
}

inline constexpr int kAdamThreads = 256, kNumbersOfThread = 4;  // of a thread block

#if defined(__CUDACC_RTC__)

// A thread reads all of its numbers before it writes one, so that none waits for another's way.
extern "C" __global__ void __launch_bounds__(kAdamThreads)
    spillway_update_adam(const __grid_constant__ AdamUpdate update) {
  const long long first = (long long)blockIdx.x * (kAdamThreads * kNumbersOfThread) + threadIdx.x;
  AdamNumber numbers[kNumbersOfThread];
  SPILLWAY_UNROLL
  for (int i = 0; i < kNumbersOfThread; ++i)
    if (first + i * kAdamThreads < update.elements)
      numbers[i] = read_number(update, first + i * kAdamThreads);
  SPILLWAY_UNROLL
  for (int i = 0; i < kNumbersOfThread; ++i) {
    if (first + i * kAdamThreads >= update.elements) continue;
    advance(update.numbers, &numbers[i]);
    write_number(update, first + i * kAdamThreads, numbers[i]);
  }
}

#else

// On a processor, in vectors. Any split of the numbers gives the same bits.
void update_numbers(const AdamUpdate& update);
// Those from `begin` to before `end`.
AdamUpdate part_of(AdamUpdate update, long long begin, long long end);

#endif

}  // namespace spillway::trainer
