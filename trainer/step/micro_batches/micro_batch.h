// One micro-batch under way: its forward and its backward, piece by piece (trainer/model/pieces). On a stage
// of a pipeline over ranks they are the stage's part, from the input that it is given and from the gradient
// of its output.
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
             const Plan& plan, double scale, bool in_pieces, const std::shared_ptr<ActivationHost>& host,
             at::Tensor input = {});
  MicroBatch(const MicroBatch&) = delete;

  uint32_t number() const { return number_; }
  int64_t rows() const { return rows_; }
  bool is_forward() const { return passage_.has_value(); }
  bool is_done() const { return is_undoing_ && pieces_.all_undone(); }
  // The sum, of a forward that is done; without a graph. Not defined on a stage that has no head.
  const at::Tensor& loss() const { return loss_; }
  // Of such a stage, in its place.
  const at::Tensor& output() const { return output_; }
  // Of a backward that is done: that of the stage's input.
  const at::Tensor& input_gradient() const { return input_.grad(); }

  // REQUIRES: is_forward(). The next piece.
  void forward();
  // REQUIRES: not is_forward() and not is_done(). The last piece that has had none; first that of the loss.
  // `of_output`: the gradient of the output, where there is one.
  void backward(const at::Tensor& of_output = {});

 private:
  const uint32_t number_;
  const int64_t rows_;
  const double scale_;
  const bool has_head_;
  const at::Tensor input_;  // a leaf
  Pieces pieces_;
  std::optional<Passage<at::Tensor>> passage_;
  at::Tensor scaled_, loss_, output_;
  bool is_undoing_ = false;
};

}  // namespace spillway::trainer
