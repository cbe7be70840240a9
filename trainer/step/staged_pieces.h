// Pieces of matrices that come to their device in tiles, each put together for a round of an exchange, and
// taken apart behind it.
//
// Thread-safety: one thread, in a visit of a walk that changes what is exchanged. Ownership: the memory of a
// round's pieces; borrows the parameters. Errors: LibTorch's exceptions; RecordLost.
#pragma once
#include <map>
#include <utility>

#include "trainer/plan/parameters/partition.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

class StagedPieces {
 public:
  // `role`: the values of a run, or its gradients.
  StagedPieces(Parameters& parameters, at::Tensor TiledMatrix::Run::* role)
      : parameters_(parameters), role_(role) {}

  at::Tensor of(const Partition::Piece& piece);
  void take_apart();

 private:
  struct Staged {
    Span span;
    at::Tensor numbers;
  };
  Parameters& parameters_;
  at::Tensor TiledMatrix::Run::* const role_;
  std::map<std::pair<size_t, int64_t>, Staged> staged_;  // by parameter and first number
};

}  // namespace spillway::trainer
