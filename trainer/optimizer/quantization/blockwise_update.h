// AdamW with both moments in 8 bits, as a GPU computes it: a warp updates a block of 256 numbers, each of its
// lanes eight of them, from decoding to encoding in registers. Nothing but the arguments is read or written.
//
// Of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022). The arithmetic is that of
// blockwise_adamw.cpp, operation by operation, and so are the bits. A block's scale is the largest of its
// numbers, which no order of comparing changes.
//
// C++ and CUDA C++ alike, as code_map.h, with its conditions; and division and root rounded to the nearest,
// subnormal numbers kept.
//
// Thread-safety: pure but for what it writes; blocks are independent. Errors: none. Ownership: none.
#pragma once
#include "trainer/optimizer/quantization/code_map.h"
#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace spillway::trainer {

struct AdamWNumbers {
  float keep = 1;  // what weight decay leaves of a value
  float beta1 = 0, beta2 = 0;
  float rate = 0;        // divided by the first moment's bias
  float correction = 1;  // of the second moment's root
  float epsilon = 0;
};

struct QuantizedMoments {
  unsigned char* first_codes;   // signed
  float* first_scales;          // one a block
  unsigned char* second_codes;  // unsigned
  float* second_scales;
};

// The kernel's only argument.
struct BlockwiseUpdate {
  AdamWNumbers numbers;
  float* value;
  const float* gradient;
  QuantizedMoments moments;
  long long elements;  // from the beginning of a block on; the last block may be shorter
  CodeMap first, second;
};
static_assert(sizeof(BlockwiseUpdate) == 480, "both compilers lay it out alike");

inline constexpr int kWarpLanes = 32, kBlockNumbers = 256, kNumbersOfLane = kBlockNumbers / kWarpLanes;
inline constexpr int kWarps = 4;                   // of a thread block
inline constexpr float kLeastBlockScale = 1e-12f;  // of a block of zeros

// What the lanes of a warp do.
namespace warp {

SPILLWAY_ON_BOTH long long blocks_of(const BlockwiseUpdate& update) {
  return (update.elements + kBlockNumbers - 1) / kBlockNumbers;
}

// What a lane has of its numbers between decoding and encoding.
struct LaneMoments {
  float first[kNumbersOfLane], second[kNumbersOfLane];
};

// Bits of floats that are not negative, which compare as these do; what is not a number is above all others.
struct Largest {
  int first = 0, second = 0;
};

SPILLWAY_ON_BOTH Largest larger(const Largest& a, const Largest& b) {
  return {a.first > b.first ? a.first : b.first, a.second > b.second ? a.second : b.second};
}

SPILLWAY_ON_BOTH float scale_of(int largest) {
  const float scale = float_of(largest);
  return scale < kLeastBlockScale ? kLeastBlockScale : scale;
}

// Where a lane's i-th number lies: the lanes of a warp read one next to the other.
SPILLWAY_ON_BOTH long long place_of(long long block, int lane, int i) {
  return block * kBlockNumbers + (i * kWarpLanes + lane);
}

SPILLWAY_ON_BOTH float decoded_first(const CodeMap& map, int code, float scale) {
  const int signed_code = code - kSignedZero;
  const float size = decoded(map, signed_code < 0 ? -signed_code : signed_code) * scale;
  return signed_code < 0 ? float_of(bits_of(size) | int(0x80000000)) : size;
}

SPILLWAY_ON_BOTH int encoded_first(const CodeMap& map, float moment, float by_scale) {
  const int bits = bits_of(moment), size = encoded(map, float_of(bits & 0x7fffffff) * by_scale);
  if (bits >= 0) return kSignedZero + size;
  return kSignedZero - (size > kSignedZero ? kSignedZero : size);  // there is a code for 1, and none for -1
}

// All that a lane reads, at once, so that no number waits for another's way. What a last block lacks is zero.
struct LaneInputs {
  float value[kNumbersOfLane], gradient[kNumbersOfLane];
  int first[kNumbersOfLane], second[kNumbersOfLane];
};

SPILLWAY_ON_BOTH LaneInputs read(const BlockwiseUpdate& update, long long block, int lane) {
  LaneInputs inputs;
  SPILLWAY_UNROLL
  for (int i = 0; i < kNumbersOfLane; ++i) {
    const long long at = place_of(block, lane, i);
    const bool there = at < update.elements;
    inputs.value[i] = there ? update.value[at] : 0;
    inputs.gradient[i] = there ? update.gradient[at] : 0;
    inputs.first[i] = there ? update.moments.first_codes[at] : kSignedZero;
    inputs.second[i] = there ? update.moments.second_codes[at] : 0;
  }
  return inputs;
}

// Decodes a lane's moments, and moves them and its values on.
SPILLWAY_ON_BOTH Largest advance(const BlockwiseUpdate& update, const CodeMap& first, const CodeMap& second,
                                 long long block, int lane, LaneMoments* moments) {
  const AdamWNumbers& numbers = update.numbers;
  const float first_scale = update.moments.first_scales[block],
              second_scale = update.moments.second_scales[block];
  const LaneInputs inputs = read(update, block, lane);
  Largest largest;
  SPILLWAY_UNROLL
  for (int i = 0; i < kNumbersOfLane; ++i) {
    const float g = inputs.gradient[i];
    const float m =
        numbers.beta1 * decoded_first(first, inputs.first[i], first_scale) + (1 - numbers.beta1) * g;
    const float v =
        numbers.beta2 * (decoded(second, inputs.second[i]) * second_scale) + (1 - numbers.beta2) * g * g;
    const float root = sqrtf(v) * numbers.correction + numbers.epsilon;
    const long long at = place_of(block, lane, i);
    if (at < update.elements) update.value[at] = numbers.keep * inputs.value[i] - numbers.rate * (m / root);
    moments->first[i] = m, moments->second[i] = v;
    largest = larger(largest, {bits_of(m) & 0x7fffffff, bits_of(v) & 0x7fffffff});
  }
  return largest;
}

// Encodes a lane's moments by the new scales.
SPILLWAY_ON_BOTH void encode(const BlockwiseUpdate& update, const CodeMap& first, const CodeMap& second,
                             long long block, int lane, const LaneMoments& moments, const Largest& largest) {
  const float first_scale = scale_of(largest.first), second_scale = scale_of(largest.second);
  const float by_first = 1 / first_scale, by_second = 1 / second_scale;
  SPILLWAY_UNROLL
  for (int i = 0; i < kNumbersOfLane; ++i) {
    const long long at = place_of(block, lane, i);
    if (at >= update.elements) continue;
    update.moments.first_codes[at] =
        static_cast<unsigned char>(encoded_first(first, moments.first[i], by_first));
    update.moments.second_codes[at] =
        static_cast<unsigned char>(encoded(second, moments.second[i] * by_second));
  }
  if (lane == 0)
    update.moments.first_scales[block] = first_scale, update.moments.second_scales[block] = second_scale;
}

#if defined(__CUDACC_RTC__)

__device__ __forceinline__ Largest largest_of_warp(Largest mine) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
    mine = larger(mine,
                  {__shfl_xor_sync(~0u, mine.first, distance), __shfl_xor_sync(~0u, mine.second, distance)});
  return mine;
}

#endif

}  // namespace warp

#if defined(__CUDACC_RTC__)

// The maps in shared memory: of eight entries each lies in another bank, so that lanes never wait for each
// other.
extern "C" __global__ void __launch_bounds__(kWarpLanes* kWarps)
    spillway_update_blocks(const __grid_constant__ BlockwiseUpdate update) {
  __shared__ CodeMap maps[2];
  constexpr int kWords = sizeof(CodeMap) / sizeof(int);
  for (int i = threadIdx.x; i < 2 * kWords; i += kWarpLanes * kWarps)
    reinterpret_cast<int*>(maps)[i] = reinterpret_cast<const int*>(&update.first)[i];
  __syncthreads();
  const int lane = threadIdx.x % kWarpLanes;
  const long long block = (long long)blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  if (block >= warp::blocks_of(update)) return;
  warp::LaneMoments moments;
  const warp::Largest largest =
      warp::largest_of_warp(warp::advance(update, maps[0], maps[1], block, lane, &moments));
  warp::encode(update, maps[0], maps[1], block, lane, moments, largest);
}

#endif

}  // namespace spillway::trainer
