#include "trainer/optimizer/adam/adam_update.h"

#include <cstdint>

// A loop is compiled for several kinds of processor, and chosen at run time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SPILLWAY_VECTORS_IF_THERE \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPILLWAY_VECTORS_IF_THERE
#endif

namespace spillway::trainer {
namespace {

// Pointers that are arguments of their own: the compiler cannot know otherwise that a write leaves them as
// they are.
SPILLWAY_VECTORS_IF_THERE
void advance_all(const AdamNumbers numbers, float* __restrict value, const float* __restrict gradient,
                 float* __restrict first, float* __restrict second, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    AdamNumber number{value[i], gradient[i], first[i], second[i]};
    advance(numbers, &number);
    value[i] = number.value, first[i] = number.first, second[i] = number.second;
  }
}

SPILLWAY_VECTORS_IF_THERE
void widen_all(const unsigned short* __restrict bfloat16, float* __restrict value, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) value[i] = from_bfloat16(bfloat16[i]);
}

SPILLWAY_VECTORS_IF_THERE
void round_all(const float* __restrict value, unsigned short* __restrict bfloat16, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) bfloat16[i] = to_bfloat16(value[i]);
}

SPILLWAY_VECTORS_IF_THERE
void round_all_by_chance(const float* __restrict value, unsigned short* __restrict bfloat16,
                         unsigned long long chance, int64_t begin, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i)
    bfloat16[i] = to_bfloat16_by_chance(value[i], random_bits(chance, begin + i));
}

constexpr int64_t kAtOnce = 2048;  // a processor's first cache holds them until they are rounded

void update_floats(const AdamUpdate& update) {
  advance_all(update.numbers, update.value, update.gradient, update.first, update.second, update.elements);
  if (update.bfloat16) round_all(update.value, update.bfloat16, update.elements);
}

void update_bfloat16(const AdamUpdate& update) {
  float value[kAtOnce], gradient[kAtOnce];
  widen_all(update.bfloat16, value, update.elements);
  widen_all(update.bfloat16_gradient, gradient, update.elements);
  advance_all(update.numbers, value, gradient, update.first, update.second, update.elements);
  round_all_by_chance(value, update.bfloat16, update.chance, update.begin, update.elements);
}

}  // namespace

AdamUpdate part_of(AdamUpdate update, long long begin, long long end) {
  if (update.value) update.value += begin, update.gradient += begin;
  if (update.bfloat16) update.bfloat16 += begin;
  if (update.bfloat16_gradient) update.bfloat16_gradient += begin;
  update.first += begin, update.second += begin;
  update.begin += begin, update.elements = end - begin;
  return update;
}

void update_numbers(const AdamUpdate& update) {
  for (int64_t begin = 0; begin < update.elements; begin += kAtOnce) {
    const int64_t end = update.elements - begin < kAtOnce ? update.elements : begin + kAtOnce;
    const AdamUpdate part = part_of(update, begin, end);
    update.value ? update_floats(part) : update_bfloat16(part);
  }
}

}  // namespace spillway::trainer
