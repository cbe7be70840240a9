#include "trainer/step/staged_pieces.h"

namespace spillway::trainer {

at::Tensor StagedPieces::of(const Partition::Piece& piece) {
  const auto& [begin, length] = piece.span;
  const auto [found, is_new] = staged_.try_emplace({piece.parameter, begin});
  Staged& staged = found->second;
  if (!is_new) return staged.numbers;
  staged.span = piece.span;
  parameters_.for_each_run(piece.parameter, begin, length,
                           [&, first = begin, all = length](const TiledMatrix::Run& run, int64_t at) {
                             const at::Tensor& numbers = run.*role_;
                             if (!staged.numbers.defined())
                               staged.numbers = at::empty({all}, numbers.options());
                             staged.numbers.narrow(0, at - first, numbers.numel()).copy_(numbers);
                           });
  return staged.numbers;
}

void StagedPieces::take_apart() {
  for (const auto& [key, staged] : staged_)
    parameters_.for_each_run(key.first, staged.span.begin, staged.span.length,
                             [&, &from = staged](const TiledMatrix::Run& run, int64_t at) {
                               const at::Tensor& numbers = run.*role_;
                               numbers.copy_(from.numbers.narrow(0, at - from.span.begin, numbers.numel()));
                             });
  staged_.clear();
}

}  // namespace spillway::trainer
