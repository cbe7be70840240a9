// The optimizer's states as a whole where each rank keeps its share, for what is written to a file.
//
// Rank 0 asks, one state of one parameter after the other, and has it on the host; no rank's device needs
// room for more than the exchange's buffer. Meanwhile the others are in `serve`, which returns when rank 0
// ends it. Without sharding a rank has all states itself, and nothing is exchanged.
//
// Thread-safety: one thread. Ownership: borrows all. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include "trainer/optimizer/optimizer.h"
#include "trainer/ranks/exchange.h"

namespace spillway::trainer {

class WholeStates {
 public:
  WholeStates(Ranks& ranks, const Partition& partition, Exchange& exchange, Optimizer& optimizer,
              bool sharded)
      : ranks_(ranks),
        partition_(partition),
        exchange_(exchange),
        optimizer_(optimizer),
        is_exchanged_(sharded && !ranks.is_alone()) {}

  // Whether a rank alone has not all of them.
  bool is_exchanged() const { return is_exchanged_; }
  // REQUIRES: the others are in `serve`, unless nothing is exchanged.
  at::Tensor of(size_t parameter, size_t state);
  void end();
  void serve();

 private:
  at::Tensor exchange(size_t parameter, size_t state);

  Ranks& ranks_;
  const Partition& partition_;
  Exchange& exchange_;
  Optimizer& optimizer_;
  const bool is_exchanged_;
};

}  // namespace spillway::trainer
