// The optimizer's states, and the weights, as a whole where each rank keeps its share, or those of its stage
// of a pipeline alone, for what is written to a file.
//
// Rank 0 asks, one state of one parameter after the other, and has it on the host; no rank's device needs
// room for more than a buffer. Meanwhile the others are in `serve`, which returns when rank 0 ends it. Where
// a rank has all itself, nothing is exchanged.
//
// Thread-safety: one thread. Ownership: borrows all. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include "trainer/optimizer/optimizer.h"
#include "trainer/ranks/exchange.h"
#include "trainer/ranks/stages/mesh.h"

namespace spillway::trainer {

class WholeStates {
 public:
  // `zero`: the stage of ZeRO, of several replicas.
  WholeStates(const Mesh& mesh, const Architecture& model, const Numerics& numerics,
              const Partition& partition, Exchange& exchange, Parameters& parameters, Optimizer& optimizer,
              uint32_t zero);

  // Whether a rank alone has not all of them.
  bool is_exchanged() const { return zero_ > 0 || mesh_.has_stages(); }
  // Whether this rank's stage has a parameter.
  bool is_here(size_t parameter) const { return has(mesh_.stage(), table_[parameter]); }
  // What there is of a parameter, on whichever stage.
  std::vector<StateTensor> state_shapes(size_t parameter) const;
  std::vector<Parameters::Stored> stored_shapes(size_t parameter) const;
  // REQUIRES: the others are in `serve`, unless nothing is exchanged.
  at::Tensor of(size_t parameter, size_t state);
  // What holds a parameter (Parameters::stored).
  at::Tensor stored(size_t parameter, size_t which);
  bool asks_for(size_t parameter) const { return mesh_.has_stages() || parameters_.is_shared(parameter); }
  void end();
  void serve();
  bool weights_are_exchanged() const { return zero_ >= 3 || mesh_.has_stages(); }
  // Of all parameters. Where weights are exchanged all ranks call it, and all get it.
  uint64_t hash();
  // Of those that this rank has whole, of itself alone: equal on all replicas.
  uint64_t hash_of_own();

 private:
  at::Tensor ask(size_t parameter, size_t state);
  at::Tensor exchange(size_t parameter, size_t state);
  at::Tensor exchange_weights(size_t parameter);
  using BytesOf = std::function<int64_t(int64_t elements)>;
  at::Tensor of_replicas(size_t parameter, const at::Tensor& mine, bool in_shares, const BytesOf& bytes_of);
  at::Tensor whole(size_t parameter, const std::function<at::Tensor()>& mine, bool in_shares,
                   const BytesOf& bytes_of);
  std::vector<at::Tensor> gather_weights(size_t group);

  const Mesh& mesh_;
  Ranks& ranks_;
  const std::vector<Parameter> table_;  // of all stages
  const Numerics numerics_;
  const Partition& partition_;
  Parameters& parameters_;
  Optimizer& optimizer_;
  const uint32_t zero_;
  Exchange& exchange_;
};

}  // namespace spillway::trainer
