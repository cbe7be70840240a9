// Adds up the ranks' gradients, each once a step, in buckets of neighbouring parameters.
//
// A bucket ends with its layer, or where it has kBucketBytes: the same on all ranks, whatever their plans
// are, so that they communicate in one order. What was added up stays so when the step goes on after a
// failure.
//
// Thread-safety: one thread. Ownership: borrows parameters and ranks. Errors: LibTorch's and c10d's
// exceptions.
#pragma once
#include <vector>

#include "trainer/ranks/ranks.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

inline constexpr size_t kBucketBytes = 25 << 20;  // as DistributedDataParallel's

class GradientSums {
 public:
  // `layers[i]`: the layer of parameter i, -1 of none.
  GradientSums(Parameters& parameters, Ranks& ranks, std::vector<int> layers);

  // Of a step: nothing is added up.
  void begin() { added_up_ = 0; }
  bool has_begun() const { return added_up_ > 0; }
  // All that is not yet.
  void add_up();

 private:
  bool ends_bucket(size_t index, size_t bytes) const;

  Parameters& parameters_;
  Ranks& ranks_;
  const std::vector<int> layers_;
  size_t added_up_ = 0;  // parameters of this step
};

}  // namespace spillway::trainer
