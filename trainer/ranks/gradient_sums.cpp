#include "trainer/ranks/gradient_sums.h"

#include <algorithm>

#include "trainer/step/staged_pieces.h"

namespace spillway::trainer {

GradientSums::GradientSums(Parameters& parameters, Ranks& ranks, const Partition& partition,
                           Exchange& exchange, bool whole)
    : parameters_(parameters), ranks_(ranks), partition_(partition), exchange_(exchange), whole_(whole) {}

void GradientSums::begin() {
  added_up_ = rounds_done_ = 0;
  missing_.clear();
  for (size_t group = 0; group < partition_.groups(); ++group) {
    const auto is_here = [this](size_t index) { return !parameters_.is_empty(index); };
    missing_.push_back(size_t(std::ranges::count_if(partition_.parameters_of(group), is_here)));
  }
}

void GradientSums::sum(size_t group) {
  StagedPieces staged(parameters_, &TiledMatrix::Run::gradient);
  const auto gradient = [&](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    if (parameters_.is_tiled(piece.parameter)) return {staged.of(piece)};
    const at::Tensor all = parameters_.gradient(piece.parameter).view({-1});
    return {all.narrow(0, piece.span.begin, piece.span.length)};
  };
  exchange_.sum(group, gradient, whole_, &rounds_done_, [&] { staged.take_apart(); });
  rounds_done_ = 0;
}

// Once a step for each parameter and micro-batch, also where a backward is made again.
void GradientSums::added(size_t parameter, uint32_t micro_batch) {
  if (!exchange_.runs_beside() || micro_batch != last_) return;
  --missing_[partition_.group_of(parameter)];
  for (; added_up_ < missing_.size() && missing_[added_up_] == 0; ++added_up_)
    done_ = exchange_.beside([&] { sum(added_up_); }, std::move(done_));
}

void GradientSums::add_up() {
  if (ranks_.is_alone()) return;
  exchange_.join();
  parameters_.walk_back(Parameters::Walk::kChangeGradients, [&](int unit) {
    for (; added_up_ < partition_.groups() && partition_.part_number(added_up_) == unit; ++added_up_)
      sum(added_up_);
  });
}

void GradientSums::drain() {
  exchange_.join();
  for (; added_up_ < partition_.groups(); ++added_up_) {
    exchange_.drain(added_up_, whole_, &rounds_done_);
    rounds_done_ = 0;
  }
}

}  // namespace spillway::trainer
