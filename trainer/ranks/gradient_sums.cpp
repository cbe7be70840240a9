#include "trainer/ranks/gradient_sums.h"

#include <algorithm>

#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {

GradientSums::GradientSums(Parameters& parameters, Ranks& ranks, const std::vector<int>& units)
    : parameters_(parameters), ranks_(ranks) {
  add_pieces(units);
}

// Of whole tiles of the optimizer, as runs of a matrix in tiles are.
void GradientSums::add_pieces(const std::vector<int>& units) {
  size_t bytes = 0;  // of the bucket
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_.gradient(i);
    const int64_t most = int64_t(kBucketBytes / gradient.element_size()) / kTileElements * kTileElements;
    for (int64_t begin = 0; begin < gradient.numel(); begin += most) {
      pieces_.push_back({.parameter = i, .begin = begin, .length = std::min(most, gradient.numel() - begin)});
      bytes += size_t(pieces_.back().length) * gradient.element_size();
      const bool is_last = begin + most >= gradient.numel();
      const bool ends_group =
          is_last && (i + 1 == parameters_.size() || units[i + 1] != units[i] ||
                      parameters_.gradient(i + 1).scalar_type() != gradient.scalar_type());
      pieces_.back().ends_bucket = ends_group || bytes >= size_t(most) * gradient.element_size();
      if (pieces_.back().ends_bucket) bytes = 0;
    }
  }
}

void GradientSums::add_up() {
  if (ranks_.is_alone()) return;
  std::vector<Piece> bucket;
  size_t next = 0;
  parameters_.walk(Parameters::Walk::kChangeGradients, [&](size_t index) {
    for (; next < pieces_.size() && pieces_[next].parameter == index; ++next) {
      if (next < added_up_) continue;
      bucket.push_back(pieces_[next]);
      if (!pieces_[next].ends_bucket) continue;
      add_up_bucket(std::exchange(bucket, {}));
      added_up_ = next + 1;
    }
  });
}

void GradientSums::add_up_bucket(const std::vector<Piece>& bucket) {
  std::vector<at::Tensor> sums;
  sums.reserve(bucket.size());
  for (const Piece& piece : bucket)
    sums.push_back(
        parameters_.is_tiled(piece.parameter)
            ? put_together(piece)
            : parameters_.gradient(piece.parameter).view({-1}).narrow(0, piece.begin, piece.length));
  ranks_.add_up(sums);
  for (size_t i = 0; i < bucket.size(); ++i)
    if (parameters_.is_tiled(bucket[i].parameter)) take_apart(bucket[i], sums[i]);
}

// Of a matrix that comes in runs, the piece as one.
at::Tensor GradientSums::put_together(const Piece& piece) {
  at::Tensor whole = at::empty({piece.length}, parameters_.gradient(piece.parameter).options());
  parameters_.for_each_run(piece.parameter, piece.begin, piece.length,
                           [&](const TiledMatrix::Run& run, int64_t begin) {
                             whole.narrow(0, begin - piece.begin, run.gradient.numel()).copy_(run.gradient);
                           });
  return whole;
}

void GradientSums::take_apart(const Piece& piece, const at::Tensor& sums) {
  parameters_.for_each_run(piece.parameter, piece.begin, piece.length,
                           [&](const TiledMatrix::Run& run, int64_t begin) {
                             run.gradient.copy_(sums.narrow(0, begin - piece.begin, run.gradient.numel()));
                           });
}

}  // namespace spillway::trainer
