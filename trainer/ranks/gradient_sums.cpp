#include "trainer/ranks/gradient_sums.h"

namespace spillway::trainer {

void GradientSums::add_up() {
  if (ranks_.is_alone()) return;
  const auto gradient = [this](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    const at::Tensor all = parameters_.gradient(piece.parameter).view({-1});
    return {all.narrow(0, piece.span.begin, piece.span.length)};
  };
  size_t group = 0;
  parameters_.walk_back(Parameters::Walk::kChangeGradients, [&](int layer) {
    if (group++ < added_up_) return;
    exchange_.sum(size_t(layer + 1), gradient, whole_);
    added_up_ = group;
  });
}

double GradientSums::squares_over_ranks(double mine) {
  if (!squares_) squares_ = ranks_.sum(mine);
  return *squares_;
}

}  // namespace spillway::trainer
