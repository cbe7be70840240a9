// The optimizer's states, and the weights, as a whole where each rank keeps its share, for what is written to
// a file.
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
  WholeStates(Ranks& ranks, const Partition& partition, Exchange& exchange, Parameters& parameters,
              Optimizer& optimizer, uint32_t zero)
      : ranks_(ranks),
        partition_(partition),
        exchange_(exchange),
        parameters_(parameters),
        optimizer_(optimizer),
        zero_(ranks.is_alone() ? 0 : zero) {}

  // Whether a rank alone has not all of them.
  bool is_exchanged() const { return zero_ > 0; }
  // REQUIRES: the others are in `serve`, unless nothing is exchanged.
  at::Tensor of(size_t parameter, size_t state);
  // What holds a parameter (Parameters::stored).
  at::Tensor stored(size_t parameter, size_t which);
  void end();
  void serve();
  bool weights_are_exchanged() const { return zero_ >= 3; }
  // Of all parameters. Where weights are exchanged all ranks call it, and all get it.
  uint64_t hash();
  // Of those that this rank has whole, of itself alone: equal on all ranks.
  uint64_t hash_of_own();

 private:
  at::Tensor ask(size_t parameter, size_t state);
  at::Tensor exchange(size_t parameter, size_t state);
  at::Tensor exchange_weights(size_t parameter);
  std::vector<at::Tensor> gather_weights(size_t group);

  Ranks& ranks_;
  const Partition& partition_;
  Exchange& exchange_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  const uint32_t zero_;  // the stage
};

}  // namespace spillway::trainer
