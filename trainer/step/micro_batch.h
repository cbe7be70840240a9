// One micro-batch under way: its forward and its backward, piece by piece (trainer/model/pieces).
//
// Thread-safety: one thread. Ownership: its graphs, which go with it; borrows the model, the weights and the
// plan. Errors: LibTorch's exceptions; afterwards it can only be destroyed.
#pragma once
#include <optional>

#include "trainer/model/model.h"
#include "trainer/step/random_state.h"

namespace spillway::trainer {

class MicroBatch {
 public:
  // `scale`: of the gradients. `in_pieces`: else forward and backward are one piece each.
  MicroBatch(uint32_t number, const Model& model, const Weights& weights, const at::Tensor& rows,
             const Plan& plan, double scale, bool in_pieces, const std::shared_ptr<ActivationHost>& host);
  MicroBatch(const MicroBatch&) = delete;

  uint32_t number() const { return number_; }
  int64_t rows() const { return rows_; }
  bool is_forward() const { return !loss_.defined(); }
  bool is_done() const { return is_undoing_ && pieces_.all_undone(); }
  const at::Tensor& loss() const { return loss_; }  // the sum, of a forward that is done; without a graph

  // REQUIRES: is_forward(). The next piece.
  void forward();
  // REQUIRES: not is_forward() and not is_done(). The last piece that has had none; first that of the loss.
  void backward();

 private:
  const uint32_t number_;
  const int64_t rows_;
  const double scale_;
  Pieces pieces_;
  std::optional<Passage<at::Tensor>> passage_;
  at::Tensor scaled_, loss_;
  bool is_undoing_ = false;
};

}  // namespace spillway::trainer
