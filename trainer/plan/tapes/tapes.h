// The families' models as tapes: what their forward functions in trainer/model do, in sizes.
//
// A change of a forward function changes its tape: tests/trainer/estimates.py measures how far they agree.
// Thread-safety: pure but for the tape. Errors: none. Units: bytes.
#pragma once
#include <algorithm>
#include <vector>

#include "spillway/trainer/plan/architecture.h"
#include "spillway/trainer/plan/plan.h"
#include "trainer/plan/tape.h"

namespace spillway::trainer {

// One pass over `rows` rows.
struct TapePass {
  const Architecture& model;
  const Plan& plan;
  uint32_t rows = 1, devices = 1;
  bool training = true;
  uint64_t workspace = 0;  // of the library of products, while it computes one

  bool drops() const { return training && model.dropout > 0; }
  uint32_t device_of(uint32_t layer) const { return std::min(plan.device_of(layer), devices - 1); }
};

// Layers [first, first + count), each on its device, from x, which it takes over, to the first device.
// `reads` are inputs of every layer behind x.
Tape::Tensor run_layers(Tape* tape, const TapePass& pass, uint32_t first, uint32_t count, Tape::Tensor x,
                        const std::vector<Tape::Tensor>& reads, const Tape::Layer& layer);

// Up to the logits; token ids are not on it.
Tape::Tensor gpt2_tape(Tape* tape, const TapePass& pass);
Tape::Tensor llama_tape(Tape* tape, const TapePass& pass);
Tape::Tensor t5_tape(Tape* tape, const TapePass& pass);

}  // namespace spillway::trainer
