// AdamW with both moments in 8 bits, on a CPU: one pass over the memory of a block.
//
// Of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022): a block of 256 numbers has one
// scale, the largest of them. A block is decoded, updated in 32-bit floats, and encoded by its new scale.
//
// Thread-safety: pure but for what it writes; blocks are independent, so that any split of them among threads
// gives the same bits. Errors: none. Ownership: none.
#pragma once
#include <cstdint>

#include "trainer/optimizer/quantization/blockwise_update.h"

namespace spillway::trainer {

// How many numbers are computed at once. The bits are the same.
enum class VectorWidth : uint8_t { kEight, kSixteen };
bool can_compute(VectorWidth width);  // on this processor
VectorWidth widest_vectors();         // that it has instructions for

// `elements` from the beginning of a block on; the last block may be shorter.
void update_blocks(const AdamWNumbers& numbers, float* value, const float* gradient,
                   const QuantizedMoments& moments, int64_t elements, VectorWidth width = widest_vectors());

// Blocks `begin` to before `end` by the functions of a GPU's kernel, lane after lane: what a simulated card
// computes. The bits are the same.
void update_blocks_by_lanes(const BlockwiseUpdate& update, int64_t begin, int64_t end);

}  // namespace spillway::trainer
