// Adds up the ranks' gradients, each once a step, in the groups of the partition: from the last layer to the
// first, as a backward comes to them, and then what belongs to no layer.
//
// The order is the same on all ranks, whatever their plans are. What was added up stays so when the step goes
// on after a failure. A rank has the sums of its own sections; with `whole` each has all of them.
//
// Thread-safety: one thread. Ownership: borrows parameters, ranks and exchange. Errors: LibTorch's and c10d's
// exceptions.
#pragma once
#include <optional>

#include "trainer/ranks/exchange.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

class GradientSums {
 public:
  GradientSums(Parameters& parameters, Ranks& ranks, Exchange& exchange, bool whole)
      : parameters_(parameters), ranks_(ranks), exchange_(exchange), whole_(whole) {}

  // Of a step: nothing is added up.
  void begin() { added_up_ = 0, squares_.reset(); }
  bool has_begun() const { return added_up_ > 0; }
  // All that is not yet.
  void add_up();
  // Of the squares of the gradients, once a step: the sum that was made first.
  double squares_over_ranks(double mine);

 private:
  Parameters& parameters_;
  Ranks& ranks_;
  Exchange& exchange_;
  const bool whole_;
  size_t added_up_ = 0;            // groups of this step
  std::optional<double> squares_;  // of this step
};

}  // namespace spillway::trainer
