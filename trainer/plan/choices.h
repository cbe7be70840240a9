// Changes of a plan that both a move and the planner make: how a number follows from the model's sizes.
//
// Thread-safety: pure. Errors: false, with the plan as it was, where there is nothing to change.
#pragma once
#include <set>

#include "trainer/plan/estimate.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

// Those that are a stage's.
std::set<uint32_t> layers_here(const std::set<uint32_t>& layers, const Shape& shape);

// Of n layers in segments of k the inputs of n / k + k live at once: fewest with the square root (Chen et
// al., "Training Deep Nets with Sublinear Memory Cost", 2016). Of a plan that computes every layer again.
bool recompute_in_segments(Plan* plan, const Shape& shape);

// As many as make a chunk's logits no larger than the hidden state, as Liger Kernel has them (Hsu et al.,
// "Liger Kernel: Efficient Triton Kernels for LLM Training", 2024).
bool chunk_head(Plan* plan, const Architecture& model);

// As many slots as let states come beside the forward of the part before, with the update that it takes: all
// tiles of the largest part, and a quarter more, which come while these are updated. Of a plan whose states
// are on the host or a peer.
bool prefetch_states(Plan* plan, const Shape& shape);

// The host's processor updates what the host has all of, right before its next forward. Of a plan with all of
// the layers on the host.
bool update_on_host(Plan* plan, const Shape& shape);

// As many as make a tile of the largest matrix 2^22 numbers, but at least four: a smaller tile would be
// copied and computed in little more time than its launches take. Of a plan that may have tiles.
bool tile_layers(Plan* plan, const Shape& shape);

}  // namespace spillway::trainer
