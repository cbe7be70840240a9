#include "trainer/ranks/shares/rank_shares.h"

namespace spillway::trainer {

Exchange::Tensors RankShares::wholes_of(const TensorOf& wholes) const {
  return [&wholes](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    return {wholes(piece.parameter).narrow(0, piece.span.begin, piece.span.length)};
  };
}

Exchange::Tensors RankShares::shares_of(const TensorOf& shares) const {
  return [this, &shares](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    const auto& [begin, length] = piece.span;
    const Span& own = partition_.sections(piece.parameter)[rank_];
    return {shares(piece.parameter).narrow(0, begin - own.begin, length)};
  };
}

void RankShares::gather(int unit, const TensorOf& shares, const TensorOf& wholes) {
  exchange_.gather(group_of(unit), shares_of(shares), wholes_of(wholes));
}

void RankShares::add_up(int unit, const TensorOf& wholes, const TensorOf& shares) {
  exchange_.add_up(group_of(unit), wholes_of(wholes), shares_of(shares));
}

}  // namespace spillway::trainer
