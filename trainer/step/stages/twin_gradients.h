// Adds up the gradients of what is at the first and at the last stage of a pipeline, the embeddings that are
// the head's weights too, so that both have the sum and update it alike.
//
// Once a step, behind the sums over replicas: all copies get the same two terms, and so the same bits.
// Nothing is allocated after the constructor.
//
// Thread-safety: one thread. Ownership: a buffer; borrows parameters and mesh. Errors: c10d's exceptions.
#pragma once
#include "trainer/plan/parameters/partition.h"
#include "trainer/ranks/stages/mesh.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

class TwinGradients {
 public:
  struct Piece {
    size_t parameter = 0;
    Span span;
  };
  // `pieces`: of which this rank has the sums over replicas; the same on both stages.
  TwinGradients(const Mesh& mesh, Parameters& parameters, std::vector<Piece> pieces);

  // Of a step: nothing is added up.
  void begin() { is_added_up_ = false; }
  // Unless it is. Where a step is undone it has to be as well: the other stage waits for this one.
  void add_up();

 private:
  void add_up(const at::Tensor& mine);

  const StageLink ends_;
  const bool is_first_;
  Parameters& parameters_;
  const std::vector<Piece> pieces_;
  at::Tensor received_;
  bool is_added_up_ = false;
};

// What of the table is at both ends, of a rank that has the sums of its section, or of all.
std::vector<TwinGradients::Piece> twins_of(const std::vector<Parameter>& table, const Partition& partition,
                                           uint32_t replica, bool is_sharded);

}  // namespace spillway::trainer
