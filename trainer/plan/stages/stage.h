// The stages of a pipeline over ranks: what of a model each of them has.
//
// A stage has layers that follow each other. The first one has the embeddings too, and the last one the norm
// and the head behind the layers. Embeddings that are the head's weights as well are at both ends.
//
// Thread-safety: values and pure functions. Ownership: none. Errors: none.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

struct Stage {
  uint32_t number = 0, count = 1;
  uint32_t first = 0, end = UINT32_MAX;  // layers [first, end); by itself: all that there are

  bool is_alone() const { return count == 1; }
  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == count; }
  // Micro-batches that are under way in it at most: one more than stages are behind it, so that each of these
  // has one to compute (one forward, one backward: Narayanan et al., "PipeDream", 2019).
  uint32_t most_under_way() const { return count - number; }
  bool operator==(const Stage&) const = default;
};

// Of layers that are counted stage by stage.
Stage stage_of(const std::vector<uint32_t>& layers, uint32_t number);

// How many layers each of `count` stages has, so that the one that computes most computes as little as it
// can. The head counts as the layers whose products are as large. REQUIRES: no more stages than layers.
std::vector<uint32_t> balanced_layers(const Architecture& model, uint32_t count);

// Why a model cannot be cut so, as a text that follows the name of the option, such as "run.stages"; "": it
// can. `zero`: the stage of ZeRO of the replicas.
std::string fault_of_stages(const Architecture& model, const Numerics& numerics, uint32_t zero,
                            uint32_t count);

bool has(const Stage& stage, const Parameter& parameter);

// Of what is at both ends so many gradients are added up at a time.
inline constexpr uint64_t kTwinNumbers = 1 << 20;

// The model's table, in which the parameters that other stages have are empty: a parameter has one number on
// all ranks.
std::vector<Parameter> parameter_table(const Architecture& model, const Stage& stage);

}  // namespace spillway::trainer
