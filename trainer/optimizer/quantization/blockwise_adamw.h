// AdamW with both moments in 8 bits, on a CPU: one pass over the memory of a block.
//
// Of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022): a block of 256 numbers has one
// scale, the largest of them. A block is decoded, updated in 32-bit floats, and encoded by its new scale.
//
// Thread-safety: pure but for what it writes; blocks are independent, so that any split of them among threads
// gives the same bits. Errors: none. Ownership: none.
#pragma once
#include <cstdint>

namespace spillway::trainer {

struct AdamWNumbers {
  float keep = 1;  // what weight decay leaves of a value
  float beta1 = 0, beta2 = 0;
  float rate = 0;        // divided by the first moment's bias
  float correction = 1;  // of the second moment's root
  float epsilon = 0;
};

struct QuantizedMoments {
  uint8_t* first_codes;   // signed
  float* first_scales;    // one a block
  uint8_t* second_codes;  // unsigned
  float* second_scales;
};

// How many numbers are computed at once. The bits are the same on a processor that has both; one without
// fused multiplication and addition rounds some sums otherwise.
enum class VectorWidth : uint8_t { kEight, kSixteen };
bool can_compute(VectorWidth width);  // on this processor
VectorWidth widest_vectors();         // that it has instructions for

// `elements` from the beginning of a block on; the last block may be shorter.
void update_blocks(const AdamWNumbers& numbers, float* value, const float* gradient,
                   const QuantizedMoments& moments, int64_t elements, VectorWidth width = widest_vectors());

}  // namespace spillway::trainer
