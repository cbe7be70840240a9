#include "trainer/optimizer/quantization/blockwise_adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/quantization/vector_codes.h"
#include "trainer/plan/parameters/optimizer_state.h"

// A loop is compiled for several kinds of processor, and chosen at run time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SPILLWAY_AVX2_IF_THERE __attribute__((target_clones("arch=x86-64-v3", "default")))
#define SPILLWAY_AVX512 __attribute__((target("arch=x86-64-v4")))
#define SPILLWAY_HAS_AVX512 __builtin_cpu_supports("x86-64-v4")
#else
#define SPILLWAY_AVX2_IF_THERE
#define SPILLWAY_AVX512
#define SPILLWAY_HAS_AVX512 false
#define SPILLWAY_ANY_PROCESSOR  // sixteens are plain code then
#endif

#define SPILLWAY_INLINE \
  inline __attribute__((always_inline))  // so that it is compiled for the same processor

namespace spillway::trainer {
namespace {

constexpr int kBlock = static_cast<int>(kQuantizationBlock);

template <int kLanes>
struct Maps {
  VectorCodes<kLanes> first{signed_map()}, second{unsigned_map()};
};

template <int kLanes>
const Maps<kLanes>& maps_of() {
  static const Maps<kLanes> maps;
  return maps;
}

template <typename Vector, typename Number>
inline Vector load(const Number* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename Vector, typename Number>
SPILLWAY_INLINE void store(Vector vector, Number* to) {
  std::memcpy(to, &vector, sizeof vector);
}

// Floats that are not negative compare as their bits do; so does what is not a number, above all others.
template <int kLanes>
SPILLWAY_INLINE float largest(const float* numbers) {
  using Ints = typename Lanes<kLanes>::Ints;
  Ints most = {};
  for (int i = 0; i < kBlock; i += kLanes) {
    const Ints size = load<Ints>(numbers + i) & 0x7fffffff;
    most = size > most ? size : most;
  }
  int32_t one = most[0];
  for (int lane = 1; lane < kLanes; ++lane) one = std::max(one, most[lane]);
  return std::max(__builtin_bit_cast(float, one), kLeastBlockScale);
}

struct Block {
  float* value;
  const float* gradient;
  uint8_t* first_codes;
  float* first_scale;
  uint8_t* second_codes;
  float* second_scale;
};

// Compilers convert bytes well in a plain loop, and badly in eights.
SPILLWAY_INLINE void widen(const uint8_t* codes, int32_t* wide) {
  for (int i = 0; i < kBlock; ++i) wide[i] = codes[i];
}
SPILLWAY_INLINE void narrow(const int32_t* wide, uint8_t* codes) {
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(wide[i]);
}

template <int kLanes>
SPILLWAY_INLINE void decode(const Maps<kLanes>& maps, const AdamWNumbers& numbers, const Block& block,
                            float* first, float* second) {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;
  alignas(64) int32_t first_codes[kBlock], second_codes[kBlock];
  widen(block.first_codes, first_codes);
  widen(block.second_codes, second_codes);
  const float first_scale = *block.first_scale, second_scale = *block.second_scale;
  for (int i = 0; i < kBlock; i += kLanes) {
    const Floats g = load<Floats>(block.gradient + i);
    const Ints code = load<Ints>(first_codes + i) - kSignedZero, negative = code >> 31;
    const Floats size = maps.first.decoded((code ^ negative) - negative) * first_scale;
    const Floats m = (Floats)((Ints)size | (negative & (int32_t)0x80000000));
    const Floats v = maps.second.decoded(load<Ints>(second_codes + i)) * second_scale;
    store(numbers.beta1 * m + (1 - numbers.beta1) * g, first + i);
    store(numbers.beta2 * v + (1 - numbers.beta2) * g * g, second + i);
  }
}

SPILLWAY_INLINE void move(const AdamWNumbers& numbers, const Block& block, const float* first,
                          const float* second) {
  for (int i = 0; i < kBlock; ++i) {
    const float root = std::sqrt(second[i]) * numbers.correction + numbers.epsilon;
    block.value[i] = numbers.keep * block.value[i] - numbers.rate * (first[i] / root);
  }
}

template <int kLanes>
SPILLWAY_INLINE void encode(const Maps<kLanes>& maps, const Block& block, const float* first,
                            const float* second) {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;
  alignas(64) int32_t first_codes[kBlock], second_codes[kBlock];
  *block.first_scale = largest<kLanes>(first);
  *block.second_scale = largest<kLanes>(second);
  const float by_first = 1 / *block.first_scale, by_second = 1 / *block.second_scale;
  for (int i = 0; i < kBlock; i += kLanes) {
    const Ints bits = load<Ints>(first + i), negative = bits >> 31;
    Ints size = maps.first.encoded((Floats)(bits & 0x7fffffff) * by_first);
    size += negative & (size > kSignedZero);  // there is a code for 1, and none for -1
    store(((size ^ negative) - negative) + kSignedZero, first_codes + i);
    store(maps.second.encoded(load<Floats>(second + i) * by_second), second_codes + i);
  }
  narrow(first_codes, block.first_codes);
  narrow(second_codes, block.second_codes);
}

template <int kLanes>
SPILLWAY_INLINE void update_each(const AdamWNumbers& numbers, Block block, int64_t blocks) {
  const Maps<kLanes>& maps = maps_of<kLanes>();
  alignas(64) float first[kBlock], second[kBlock];
  for (int64_t i = 0; i < blocks; ++i) {
    decode(maps, numbers, block, first, second);
    move(numbers, block, first, second);
    encode(maps, block, first, second);
    block = {block.value + kBlock,  block.gradient + kBlock,     block.first_codes + kBlock,
             block.first_scale + 1, block.second_codes + kBlock, block.second_scale + 1};
  }
}

SPILLWAY_AVX512 void update_by_sixteens(const AdamWNumbers& numbers, const Block& block, int64_t blocks) {
  update_each<16>(numbers, block, blocks);
}

SPILLWAY_AVX2_IF_THERE void update_by_eights(const AdamWNumbers& numbers, const Block& block,
                                             int64_t blocks) {
  update_each<8>(numbers, block, blocks);
}

// What a block lacks of 256 is filled with zeros, which leave its scales as they are.
template <typename Update>
void update_rest(Update update_whole, const AdamWNumbers& numbers, const Block& block, int64_t count) {
  float value[kBlock] = {}, gradient[kBlock] = {};
  uint8_t first[kBlock], second[kBlock] = {};
  std::fill(first, first + kBlock, static_cast<uint8_t>(kSignedZero));
  std::copy_n(block.value, count, value), std::copy_n(block.gradient, count, gradient);
  std::copy_n(block.first_codes, count, first), std::copy_n(block.second_codes, count, second);
  update_whole(numbers, {value, gradient, first, block.first_scale, second, block.second_scale}, 1);
  std::copy_n(value, count, block.value);
  std::copy_n(first, count, block.first_codes), std::copy_n(second, count, block.second_codes);
}

}  // namespace

bool can_compute([[maybe_unused]] VectorWidth width) {
#if defined(SPILLWAY_ANY_PROCESSOR)
  return true;
#else
  return width == VectorWidth::kEight || SPILLWAY_HAS_AVX512;
#endif
}

VectorWidth widest_vectors() {
  static const bool sixteen = SPILLWAY_HAS_AVX512;
  return sixteen ? VectorWidth::kSixteen : VectorWidth::kEight;
}

void update_blocks(const AdamWNumbers& numbers, float* value, const float* gradient,
                   const QuantizedMoments& moments, int64_t elements, VectorWidth width) {
  const auto update_whole = width == VectorWidth::kSixteen ? update_by_sixteens : update_by_eights;
  const int64_t blocks = elements / kBlock, done = blocks * kBlock;
  const auto block_at = [&](int64_t number) {
    return Block{value + number * kBlock,
                 gradient + number * kBlock,
                 moments.first_codes + number * kBlock,
                 moments.first_scales + number,
                 moments.second_codes + number * kBlock,
                 moments.second_scales + number};
  };
  update_whole(numbers, block_at(0), blocks);
  if (done < elements) update_rest(update_whole, numbers, block_at(blocks), elements - done);
}

}  // namespace spillway::trainer
