#include "trainer/model/pieces/pieces.h"

#include <utility>

#include "trainer/model/shared_input.h"

namespace spillway::trainer {

void Pieces::cut(at::Tensor* x) {
  cuts_.emplace_back();
  cut_off(x);
  for (SharedInput* input : shared_) cut_off(input->rest());
}

// What nothing of this piece has read is a leaf already, of an earlier piece or of the parameters.
void Pieces::cut_off(at::Tensor* tensor) {
  if (!tensor->defined() || !tensor->grad_fn()) return;
  at::Tensor leaf = tensor->detach().requires_grad_(true);
  cuts_.back().push_back({std::exchange(*tensor, leaf), leaf});
}

void Pieces::undo() {
  std::vector<at::Tensor> roots, gradients;
  for (Cut& cut : cuts_.back()) {
    if (!cut.to.grad().defined()) continue;  // nobody read it
    roots.push_back(std::move(cut.from));
    gradients.push_back(std::move(cut.to.mutable_grad()));
  }
  cuts_.pop_back();
  torch::autograd::backward(roots, gradients);
}

}  // namespace spillway::trainer
