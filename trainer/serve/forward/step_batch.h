// The tokens of one step as tensors: those of all sequences in one row, and for each attention which of them
// belong together.
//
// Thread-safety: one thread. Ownership: owns its tensors, on the model's first device. Errors: LibTorch's
// exceptions.
#pragma once
#include <map>
#include <span>

#include "trainer/libtorch.h"
#include "trainer/plan/architecture.h"
#include "trainer/serve/batching/scheduler.h"

namespace spillway::trainer::serve {

// Tokens that attend in one call: the next tokens of prompts, or one token each of several sequences.
struct Group {
  int64_t first = 0;      // row of its first token
  int64_t sequences = 1;  // either is 1
  int64_t tokens = 1;     // of each
  bool begins = false;    // its tokens are the sequence's first, more than one: there is nothing to read
  at::Tensor table{};     // [sequences, blocks], padded with any block
  at::Tensor distance{};  // [sequences, tokens, places]: of each place from the query, below 0 behind it
  at::Tensor source_table{},
      source_padding{};  // of an encoder's tokens; the second [sequences, 1, 1, places]
};

// A source that has to be encoded.
struct NewSource {
  at::Tensor tokens, slots;  // [1, tokens] and [tokens]
};

struct StepBatch {
  at::Tensor tokens, positions, slots;  // [1, tokens], [tokens] and [tokens]
  at::Tensor last;                      // rows whose logits are wanted
  std::vector<Group> groups;            // in the order of their rows
  std::vector<NewSource> sources;
};

// A batch where layers read it: on the first device, and a copy on each other one that asks. Copies have what
// layers read, the slots and the groups.
class DeviceBatches {
 public:
  explicit DeviceBatches(const StepBatch& first);

  const StepBatch& first() const { return first_; }
  const StepBatch& on(at::Device device) const;

 private:
  const StepBatch& first_;
  mutable std::map<int, StepBatch> copies_;  // by the device's number
};

// `segments`: as of Scheduler::next. They are put into the order of the batch's rows. `most_gathered`: tokens
// that a group of several sequences may read.
StepBatch step_batch(std::vector<Segment>* segments, at::Device device, at::ScalarType type,
                     uint64_t most_gathered);

}  // namespace spillway::trainer::serve
