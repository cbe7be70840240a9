// Adds up the ranks' gradients, each once a step, in the groups of the partition: from the last layer to the
// first, as a backward comes to them, and then what belongs to no layer. A matrix that comes to its device in
// tiles is put together piece by piece, and taken apart again.
//
// The order is the same on all ranks, whatever their plans are. What was added up stays so when the step goes
// on after a failure. A rank has the sums of its own sections; with `whole` each has all of them.
//
// A GPU may add up beside the step's last backward: a group as soon as the backward has left it, when all
// before it in the order have gone. What is left is added up behind the backward.
//
// Thread-safety: one thread at a time; `added` comes from autograd's, while the caller waits for the
// backward. Ownership: borrows parameters, ranks and exchange. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include <optional>
#include <vector>

#include "trainer/ranks/exchange.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

class GradientSums {
 public:
  GradientSums(Parameters& parameters, Ranks& ranks, const Partition& partition, Exchange& exchange,
               bool whole);

  // Of a step: nothing is added up.
  void begin();
  bool has_begun() const { return added_up_ > 0 || rounds_done_ > 0; }
  // The backward of this micro-batch is the step's last, and groups are added up beside it; nothing: none is.
  void beside(std::optional<uint32_t> last_micro_batch) { last_ = last_micro_batch; }
  // A parameter has its gradient of a micro-batch.
  void added(size_t parameter, uint32_t micro_batch);
  // All that is not yet.
  void add_up();
  // The same exchanges, of nothing: the others do not wait for this rank, and their sums are worth nothing.
  void drain();

 private:
  void sum(size_t group);

  Parameters& parameters_;
  Ranks& ranks_;
  const Partition& partition_;
  Exchange& exchange_;
  const bool whole_;
  std::optional<uint32_t> last_;
  std::vector<size_t> missing_;  // gradients of the last micro-batch, by group
  CopyStream::Mark done_;        // of sums beside the backward
  size_t added_up_ = 0;          // groups of this step
  size_t rounds_done_ = 0;       // of the next group
};

}  // namespace spillway::trainer
