// Adds up the ranks' gradients, each once a step, in buckets of neighbouring parameters.
//
// A bucket ends with its unit, a layer's part, or where it has kBucketBytes; a larger parameter is in
// several. They are the same on all ranks, whatever their plans are, so that all communicate in one order. A
// matrix that comes to its device in tiles is put together for its bucket, and taken apart again. What was
// added up stays so when the step goes on after a failure.
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
  // `units[i]`: the unit of parameter i, -1 of none.
  GradientSums(Parameters& parameters, Ranks& ranks, const std::vector<int>& units);

  // Of a step: nothing is added up.
  void begin() { added_up_ = 0; }
  bool has_begun() const { return added_up_ > 0; }
  // All that is not yet.
  void add_up();

 private:
  // Numbers of a parameter's gradient.
  struct Piece {
    size_t parameter = 0;
    int64_t begin = 0, length = 0;
    bool ends_bucket = false;
  };
  void add_pieces(const std::vector<int>& units);
  at::Tensor put_together(const Piece& piece);
  void take_apart(const Piece& piece, const at::Tensor& sums);
  void add_up_bucket(const std::vector<Piece>& bucket);

  Parameters& parameters_;
  Ranks& ranks_;
  std::vector<Piece> pieces_;
  size_t added_up_ = 0;  // pieces, of this step
};

}  // namespace spillway::trainer
