// The families' models as tapes: what their forward functions in trainer/model do, in sizes.
//
// A change of a forward function changes its tape: tests/trainer/estimates.py measures how far they agree.
// Thread-safety: pure but for the tape. Errors: none. Units: bytes.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/tapes/tape.h"

namespace spillway::trainer {

// One pass over `rows` rows.
struct TapePass {
  static constexpr uint64_t kTokenId = 8, kFloat = 4;
  const Architecture& model;
  const Plan& plan;
  uint32_t rows = 1, devices = 1;
  bool training = true;
  uint64_t workspace = 0;  // of the library of products, while it computes one
  Precision precision = Precision::kFloat32;
  uint64_t offload_least_bytes = kOffloadLeastBytes;
  uint32_t tiles = 1;      // that the layers' matrices come in
  bool in_pieces = false;  // several micro-batches are under way
  Stage stage{};           // whose layers are computed

  // Of one number: of an activation, of a weight, and of a fresh gradient of either.
  uint64_t number() const { return Numerics{.precision = precision}.weight_bytes(); }

  bool drops() const { return training && model.dropout > 0; }
  uint64_t target_tokens() const { return uint64_t{rows} * model.target_tokens(); }
  uint32_t device_of(uint32_t layer) const { return std::min(plan.device_of(layer), devices - 1); }
  // Of what layers on it keep, where that is offloaded.
  Memory::Home home_of(uint32_t device) const {
    const bool is_peer = plan.offload_to == Place::kPeer;
    return {device, is_peer ? std::min(plan.peer_of(device), devices - 1) : device,
            plan.offload_to == Place::kNvme};
  }
};

// A part of a layer: see LayerPart of trainer/model/run_parts.h.
struct TapePart {
  Part part{};
  // What it adds to x; inputs: x, and what it reads.
  Tape::Tensor (*adds)(Tape* tape, const TapePass& pass, const std::vector<Tape::Tensor>& inputs) = nullptr;
  uint32_t reads = 0;
};
using TapeParts = std::span<const TapePart>;

// Layers [first, first + count), each on its device, from x, which it takes over, to the first device.
// `reads` are what every layer's parts read, one after the other.
Tape::Tensor run_layers(Tape* tape, const TapePass& pass, uint32_t first, uint32_t count, Tape::Tensor x,
                        const std::vector<Tape::Tensor>& reads, TapeParts parts);

// What the head multiplies, or of a stage before the last one what it hands on: the hidden state, and the
// embedding's weights, which count if the head is tied.
struct TapeHead {
  Tape::Tensor hidden, words;
};

// Up to the head; token ids are not on it.
TapeHead gpt2_tape(Tape* tape, const TapePass& pass);
TapeHead llama_tape(Tape* tape, const TapePass& pass);
TapeHead t5_tape(Tape* tape, const TapePass& pass);

// From there to the loss, whole or in chunks. Takes over the hidden state.
Tape::Tensor loss_tape(Tape* tape, const TapePass& pass, const TapeHead& head);

}  // namespace spillway::trainer
